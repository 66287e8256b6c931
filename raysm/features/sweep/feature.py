"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    kinds={
        "function_sweep": "raysm.features.sweep.request:FunctionSweep",
        "script_sweep": "raysm.features.sweep.request:ScriptSweep",
    },
    names=within(
        "raysm.features.sweep",
        client=["Sweep", "SweepResult"],
        request=["Asha", "Median", "Pbt"],
        space=[
            "choice",
            "lograndint",
            "loguniform",
            "qloguniform",
            "quniform",
            "randint",
            "uniform",
        ],
        tuning=["Tuning", "attach_tuning", "tune"],
    ),
    views={
        "plot_sweep": "raysm.features.sweep.plots:plot_sweep",
        "run_about_tuning": "raysm.features.sweep.tuning_command:run_if_tuning",
    },
    commands={
        "sweep": "raysm.features.sweep.command_arguments:add_sweep",
        "tune": "raysm.features.sweep.command_arguments:add_tune",
    },
)
