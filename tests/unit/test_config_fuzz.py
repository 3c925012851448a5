"""Configuration files with mistakes: each is planned or refused, soon, and never with a traceback.

150 files in the normal run, 10,000 with `make test-long`.
"""

from __future__ import annotations

import io
import resource
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

import pytest

import envs.adapters
from arena.cli.main import main
from mutated_configs import mutant
from run_cli import arena
from working_folder import working_directory

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SOURCES = sorted([*CONFIGS.glob("*.yaml"), *CONFIGS.glob("examples/*/*.yaml")])
UNPREPARED = {"own_loss/imitate.yaml", "shared_memory/config.yaml"}  # need a run, or a program, to be made first
FEW, MANY = 150, 10_000  # files in the normal run, and in the long one
PROCESSES = 2
ADAPTERS = Path(envs.adapters.__file__).parent
HOME = {CONFIGS.parent / package for package in ("arena", "envs", "policies")}
MOST_FOREIGN = 3  # files of each source whose game is another library's and takes longer than `SECONDS` to make
SECONDS = 5.0  # of processor time for one file; the slowest take one on a busy core
GIBIBYTES = 4 * 2**30


class TakesTooLong(BaseException):
    """Derived from BaseException, so that no handler of ordinary errors catches it."""


@contextmanager
def limited(seconds: float, nbytes: int) -> Iterator[None]:
    """Limits the processor time of the block, and the bytes that it may allocate."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TakesTooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + nbytes, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def ended(command: str, path: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process; the streams are as strict as a console's."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
    with redirect_stdout(out), redirect_stderr(err), limited(SECONDS, GIBIBYTES):
        code = main([command, str(path)])
        out.flush()
    err.flush()
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]


def flawless(code: int, out: str, err: str) -> bool:
    """Whether a command has succeeded, or ended with one message."""
    if code == 0:
        return "processes" in out and err == ""
    return code == 2 and err.startswith("arena: error: ") and "Traceback" not in err


def shown(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")[:5000]


@pytest.fixture
def at_home(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A configuration, in the folder that holds the modules that it names."""
    source: Path = request.param
    with working_directory(source.parent), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield source


def foreign(error: BaseException) -> bool:
    """Whether it came from the constructor of another library's game: making many entities takes long."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    return isinstance(error, TakesTooLong) and (ADAPTERS in files[-1].parents or not HOME & {*files[-1].parents})


@pytest.mark.slow
@pytest.mark.parametrize("files", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("at_home", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}", indirect=True)
def test_mistaken_file_is_planned_or_refused(at_home: Path, files: int, tmp_path: Path) -> None:
    path = tmp_path / "mutant.yaml"
    found: Counter[int | None] = Counter()
    for seed in range(-(-files // len(SOURCES))):
        content = mutant(at_home, seed)
        path.write_bytes(content)
        try:
            code, out, err = ended("check" if seed % 10 == 0 else "plan", path)
        except BaseException as error:
            if not foreign(error):
                raise AssertionError(f"seed {seed}: {error!r}\n{shown(content)}") from error
            found[None] += 1
            continue
        assert flawless(code, out, err), f"seed {seed}: exit {code}\n{out[-500:]}\n{err}\n{shown(content)}"
        found[code] += 1
    assert found[None] <= MOST_FOREIGN, found
    assert found[2] > 0
    if files == MANY:
        assert found[2] > 20, "many files are refused"
        assert found[0] > 20 or f"{at_home.parent.name}/{at_home.name}" in UNPREPARED, "many are valid"


@pytest.mark.slow
def test_mistaken_file_in_its_own_process_exits_with_0_or_2(tmp_path: Path) -> None:
    for seed in range(PROCESSES):
        source = SOURCES[seed % len(SOURCES)]
        content = mutant(source, MANY + seed)
        (tmp_path / "mutant.yaml").write_bytes(content)
        done = arena(source.parent, "plan", str(tmp_path / "mutant.yaml"))
        assert flawless(done.code, done.out, done.err), f"seed {seed}: {done}\n{shown(content)}"
