"""Packages made for a test."""

import zipfile


def make_wheel(folder, name, version="1.0", body="VALUE = 42\n", requires=(), scripts=None):
    """Return a wheel as small as they get: one module, what it requires, and its console scripts by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", body)
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
        if scripts:
            lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
            wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{lines}")
    return path


def make_installed(folder, name, version, body="VALUE = 42\n"):
    """Make a folder in which a package is installed, as an image has it, and return it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("")
    (info / "INSTALLER").write_text("pip\n")
    (folder / f"{name}.py").write_text(body)
    return folder
