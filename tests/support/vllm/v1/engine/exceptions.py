class EngineDeadError(Exception):
    def __init__(self):
        super().__init__(
            "EngineCore encountered an issue. See stack trace (above) for the root cause."
        )
