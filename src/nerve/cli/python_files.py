"""Python files from the command line: import them and call their `register(session)`."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from nerve.cli.errors import UsageError
from nerve.session import Session


def register_python_file(session: Session, file: Path) -> list[str]:
    """Import a file and call its `register(session)`; return the ids of the new workflows."""
    if not file.is_file():
        raise UsageError(f"File not found: {file}.")
    known_ids = set(session.workflows)
    try:
        call = getattr(import_python_file(file), "register", None)
        if callable(call):
            call(session)
    except Exception as error:
        raise UsageError(f"{locate_error_in_file(error, file)}: {type(error).__name__}: {error}.") from None
    if not callable(call):
        raise UsageError(
            f"{file} does not define register(session). Add it to register the workflows of the file."
        )
    return [name for name in session.list_workflows() if name not in known_ids]


def import_python_file(file: Path) -> ModuleType:
    """Import a file as a module. The module can import files from its own folder."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"nerve_file_{file.stem}"  # a file json.py must not replace the module json
    spec = spec_from_file_location(name, file, loader=UncachedLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class UncachedLoader(SourceFileLoader):
    """Compiles the source every time, because cached bytecode misses an edit of the same second and size."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def locate_error_in_file(error: Exception, file: Path) -> str:
    """Return `file:line` of an error, or the file if no line of it is known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == file.name:
        lines.append(error.lineno)
    return f"{file}:{lines[-1]}" if lines else str(file)
