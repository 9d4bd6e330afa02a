"""The package as a whole: what an import costs, and what the repository promises."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import memenvs
from memenvs.core.links import check_links

ROOT = Path(__file__).parents[2]
BESIDE = ("wrappers", "baselines", "data")
HEAVY = ("torch", "transformers", "faiss", "vllm", "sentence_transformers", "bm25s", "fastapi", "pandas")
HEAVY += ("asyncio",)


def python(code, **settings):
    """Run Python code in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **settings)


def fresh(code):
    return python(code, check=True).stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        *("import memenvs.envs.chunk_qa", "import memenvs.commands.build", "import memenvs.wrappers"),
        *("import memenvs", "import memenvs.wrappers.scorers", "import memenvs.baselines"),
        "from memenvs import TextEnv, TextVectorEnv, collect, evaluate",
        "import gymnasium; env = gymnasium.make('memenvs:MemChunkQA-v0'); env.reset(seed=0); env.step('x')",
    ],
)
def test_importing_and_playing_load_no_heavy_library(code):
    assert fresh(f"{code}\nimport sys; print([m for m in {HEAVY!r} if m in sys.modules])") == "[]"


@pytest.mark.parametrize("name", memenvs.__all__)
def test_every_public_name_is_there_and_listed(name):
    assert getattr(memenvs, name).__doc__
    assert name in dir(memenvs)


def test_a_name_that_is_not_public_is_missed():
    with pytest.raises(AttributeError, match="module 'memenvs' has no attribute 'colect'"):
        memenvs.colect  # noqa: B018


@pytest.mark.parametrize(("place", "fix"), [(".git", "git checkout -- memenvs"), ("", "copy data, wrappers")])
def test_a_checkout_or_an_archive_without_links_is_told_how_to_make_them(place, fix, tmp_path):
    package = tmp_path / "memenvs"
    for name in ("baselines", "wrappers"):
        (package / name).mkdir(parents=True)
    (package / "data").write_text("../data")  # what git and some archivers write without links
    (package / "wrappers").rmdir()
    (tmp_path / place).mkdir(exist_ok=True)
    with pytest.raises(ImportError, match=f"memenvs/data and memenvs/wrappers must be .*{fix}"):
        check_links(package)
    (package / "data").unlink()
    for name in ("data", "wrappers"):
        (package / name).mkdir()
    check_links(package)


def test_a_build_without_links_fails_and_says_why(tmp_path):
    pytest.importorskip("setuptools", reason="setuptools builds the package: pip install setuptools")
    (tmp_path / "memenvs" / "core").mkdir(parents=True)
    for file in ("setup.py", "memenvs/core/links.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    done = subprocess.run(
        [sys.executable, "setup.py", "--name"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("memenvs cannot be built: memenvs/baselines and memenvs/data and")


@pytest.mark.parametrize("name", ["wrappers", "baselines", "data"])
def test_a_folder_of_the_root_is_imported_by_its_name_in_the_package(name):
    done = python(f"import {name}", cwd=ROOT)
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: import memenvs.{name}:")


def build(kind, tmp_path):
    """A copy of the project, and what its build backend makes of it."""
    clone, made = tmp_path / "clone", tmp_path / "made"
    made.mkdir()
    kept = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("memenvs", "tests", "docs", "benchmarks", "examples", *BESIDE):
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=kept)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != "PKG-INFO":
            shutil.copy(path, clone)
    build_of(kind, clone, made)
    (file,) = made.iterdir()
    return clone, file


def build_of(kind, folder, out):
    """Let the build backend of a folder write a wheel, an editable wheel or an sdist."""
    pytest.importorskip("setuptools", reason="setuptools builds the package: pip install setuptools")
    code = f"from setuptools.build_meta import build_{kind}; build_{kind}({str(out)!r})"
    python(f"import warnings; warnings.simplefilter('ignore'); {code}", cwd=folder, check=True)


@pytest.mark.parametrize(
    ("name", "module"), [("mem_search_v1", "mem_search_v1"), ("memenvs_sokoban", "server")]
)
def test_a_package_of_the_examples_is_built_with_its_module(name, module, tmp_path):
    build_of("wheel", shutil.copytree(ROOT / "examples" / name, tmp_path / name), tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        assert f"{module}/__init__.py" in file.namelist()


def test_an_editable_install_writes_a_path_which_type_checkers_follow(tmp_path):
    clone, wheel = build("editable", tmp_path)
    with zipfile.ZipFile(wheel) as file:
        (path,) = [name for name in file.namelist() if "dist-info" not in name]
        assert file.read(path).decode().split() == [str(clone)]


def test_a_wheel_holds_every_text_that_the_package_reads(tmp_path):
    _, wheel = build("wheel", tmp_path)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed := tmp_path / "installed")
    texts = {
        str(path.relative_to(ROOT))
        for folder in (ROOT / "memenvs", *(ROOT / "memenvs" / name for name in BESIDE))
        for kind in ("*.txt", "*.json")
        for path in folder.rglob(kind)
    }
    held = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert texts <= held
    code = "from memenvs.build.worldgen import generate\n"
    code += "print(len(generate(20, 1, split='test', seed=0).documents))"
    bare = {"PATH": os.environ["PATH"]}  # nothing here leads to another memenvs
    done = python(code, cwd=installed, env=bare)
    assert done.stdout == "20\n", done.stderr


def test_an_sdist_holds_what_its_tests_need(tmp_path):
    _, packed = build("sdist", tmp_path)
    assert packed.stat().st_size < 15_000_000  # of which two adapters take 8.6
    with tarfile.open(packed) as file:
        file.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("memenvs-*")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {f"tests/{path.relative_to(ROOT / 'tests')}" for path in ROOT.glob("tests/**/*.py")} <= files
    bare = {"PATH": os.environ["PATH"]}  # nothing here leads to another memenvs
    run = functools.partial(subprocess.run, cwd=folder, env=bare, capture_output=True, text=True)
    place = run([sys.executable, "-c", "import memenvs; print(memenvs.__file__)"]).stdout.strip()
    assert place == str(folder / "memenvs" / "__init__.py")
    some = ["tests/tasks/test_taskset.py", "tests/envs/test_tool_qa.py"]
    some += ["tests/build/test_worldgen.py::test_a_world_of_any_size_has_every_kind"]
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some])
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def place_memenvs(folder, recorded=None):
    """What `install_line` of the extras module in a folder of its own says."""
    core = folder / "memenvs" / "core"
    core.mkdir(parents=True)
    for package in (core, core.parent):
        (package / "__init__.py").touch()
    for name in ("optional.py", "errors.py"):
        shutil.copy(ROOT / "memenvs" / "core" / name, core)
    if recorded is not None:
        info = folder / "memenvs-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memenvs\nVersion: 0.1.0\n")
        if recorded:
            (info / "direct_url.json").write_text(json.dumps(recorded))
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from memenvs.core.optional import install_line"
    code = f"{code}; print(install_line('search'))"
    lines = [python(code, cwd=cwd, check=True).stdout.strip() for cwd in (folder, ROOT.parent)]
    return lines if lines[0] != lines[1] else lines[0]


def test_in_a_clone_an_extra_is_installed_from_the_clone(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    inside, outside = place_memenvs(tmp_path)
    assert inside == 'pip install -e ".[search]"'
    assert outside == f'pip install -e "{tmp_path}[search]"'


@pytest.mark.parametrize(
    ("recorded", "line"),
    [
        ({}, 'pip install "memenvs[search]"'),
        ({"url": "file:///a.whl", "archive_info": {}}, 'pip install "memenvs[search] @ file:///a.whl"'),
        (
            {"url": "https://host/m.git", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}},
            'pip install "memenvs[search] @ git+https://host/m.git@1a2b"',
        ),
    ],
)
def test_elsewhere_an_extra_is_installed_from_where_memenvs_came(recorded, line, tmp_path):
    assert place_memenvs(tmp_path, recorded) == line


def test_no_global_random_generator_is_touched():
    code = (
        "import random, numpy as np, gymnasium as gym\n"
        "random.seed(1); np.random.seed(1)\n"
        "env = gym.make('memenvs:MemChunkQA-v0', n_documents=20)\n"
        "env.reset(seed=0); env.step('x'); env.reset()\n"
        "a = (random.random(), np.random.random())\n"
        "random.seed(1); np.random.seed(1)\n"
        "print(a == (random.random(), np.random.random()))"
    )
    assert fresh(code) == "True"
