"""What is checked, and how: `nox` runs all of it, `nox -l` lists it."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
# Else it passes where a Python is missing, and has left out what runs with that.
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "types", "tests_oldest", "tests_newest", "plugins", "examples", "docs", "release"]

ROOT = Path(__file__).parent
PACKAGES = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))
# Many tests start processes of their own, each of which would compile TensorFlow's sources again where Python is told
# not to write bytecode (PYTHONDONTWRITEBYTECODE): that takes three times as long as to import it.
os.environ.setdefault("UV_COMPILE_BYTECODE", "1")
OLDEST, NEWEST = "3.10", "3.13"
OF_TENSORFLOW_1 = "3.7"
TEST_TOOLS = [
    "pytest>=8",
    "pytest-timeout",
    "pytest-xdist>=3.8",
    "hypothesis",
    "ipython",
    "pillow",
    "nvidia-ml-py",
    "psutil",
    "scikit-learn",
    "tensorboard",
    "matplotlib",
]
ON_CPUS = ["-r", "requirements-cpu.txt"]
"""What tpk needs, with TensorFlow for CPUs only."""
LIBRARIES = ["attrs", "click", "cloudpickle", "lazy-loader", "packaging", "rich", "tomli", "tomli-w", "tqdm"]
DATA_FORMATS = ["lmdb", "msgpack"]
# Many tests wait for other processes: two more workers than there are cores; but each has a TensorFlow of its own.
WORKERS = ["--numprocesses", str(min((os.cpu_count() or 1) + 2, 8))]
IN_PARALLEL = [*WORKERS, "--dist", "loadfile"]
# In the order of tests/conftest.py, which spreads the files that wait; by default xdist starts with the largest files.
SPREAD = [*IN_PARALLEL, "--no-loadscope-reorder"]
# Of a test with many cases the oldest runs the first one; the newest runs so many that each value of each parameter
# occurs. `tests_all` runs all of them.
SOME_ON_OLDEST, SOME_ON_NEWEST = ["--cases-of-each", "1"], ["--each-choice"]

# What depends on TensorFlow's TF1 behaviour: shapes of dimensions, reference variables, no eager mode.
IN_TF1 = ["input_source", "predict", "callbacks", "session", "strategies", "train"]


def add_interpreters_of_pyenv():
    """Put pyenv's interpreters on the path: its shims refuse each version that is not the active one."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
    for version in (OF_TENSORFLOW_1, OLDEST, NEWEST):
        for directory in sorted(Path(root, "versions").glob(f"{version}.*/bin")):
            os.environ["PATH"] += os.pathsep + str(directory)
            shim = shutil.which(f"python{version}")
            if shim is not None and subprocess.run([shim, "-V"], capture_output=True).returncode != 0:
                os.environ["PATH"] = str(directory) + os.pathsep + os.environ["PATH"]


add_interpreters_of_pyenv()


def run_tests(session, *arguments, **environment):
    """Run pytest, whose processes import Keras without what that imports by the way; see `tests/interpreter`."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests" / "interpreter"), os.environ.get("PYTHONPATH")]))
    if os.environ.get("CI"):  # On a busy machine; the summary says which tests needed a second try, and why.
        session.install("pytest-rerunfailures")
        arguments = ("--reruns", "1", "-raR", "-p", "rerun_reasons", *arguments)
    session.run("pytest", *arguments, *session.posargs, env={"PYTHONPATH": path, **environment})


@nox.session(python=NEWEST)
def lint(session):
    """Style, and formatting."""
    session.install("ruff>=0.8")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=NEWEST)
def types(session):
    """Types of the library, and of code that uses it where it is installed; TensorFlow itself counts as Any."""
    session.install("mypy>=1.11", *LIBRARIES, "numpy", "pluggy>=1.6", "pytest>=8", "pytest-timeout", "hypothesis")
    session.install("--no-deps", ".", "./plugins/tpk-distributed", "./plugins/tpk-keras")
    session.run("mypy")
    session.run("pytest", "tests/test_types.py")


@nox.session(python=OLDEST)
def tests_oldest(session):
    """The tests, one case of each, on the oldest of everything that is supported, with TensorFlow for CPUs only.

    `nox -s tests_oldest -- --cases-of-each 1000` runs all of their cases there, too.
    """
    session.install("tensorflow-cpu==2.15.*", "numpy==1.26.*", "pluggy==1.6.0", *ON_CPUS)
    session.install(*DATA_FORMATS, *TEST_TOOLS)
    # Keras 2, which TensorFlow 2.15 brings, is tested here; `plugins` tests Keras 3, and Keras 2 as tf_keras.
    packages = [f"./plugins/tpk-{name}" for name in ("distributed", "keras", "lmdb")]
    session.install("--no-deps", ".", *packages)
    tests = [] if session.posargs else ["tests", *(f"{package}/tests" for package in packages)]
    run_tests(session, *SPREAD, *tests, "--ignore=tests/manual", "-m", "not once", *SOME_ON_OLDEST)


def run_tests_on_newest(session, *options):
    session.install("tensorflow==2.21.*", ".[test]", "./plugins/tpk-distributed[test]", "./plugins/tpk-keras")
    tests = [] if session.posargs else ["tests", "plugins/tpk-distributed/tests"]
    run_tests(session, *SPREAD, *tests, "--ignore=tests/manual", *options)


@nox.session(python=NEWEST)
def tests_newest(session):
    """The tests, on the newest of everything; of those with many cases, some. Then those of `tests_tf1`.

    The tests of tpk-distributed run beside them: they mostly wait, and alone they would leave the machine idle.
    """
    run_tests_on_newest(session, *SOME_ON_NEWEST)
    if not session.posargs:  # Here, because another environment takes as long as these tests.
        run_tests_in_tf1(session)


@nox.session(python=NEWEST)
def tests_tf1(session):
    """The tests of what builds and runs graphs, one case of each, under `tf.compat.v1.disable_v2_behavior()`."""
    session.install("tensorflow-cpu==2.21.*", *ON_CPUS, *TEST_TOOLS)
    session.install("--no-deps", ".")
    run_tests_in_tf1(session)


def run_tests_in_tf1(session):
    tests = [f"tests/{room}" for room in IN_TF1]
    run_tests(session, *IN_PARALLEL, *tests, "-m", "not once", *SOME_ON_OLDEST, TPK_TEST_TF1="1")


@nox.session(python=NEWEST)
def tests_all(session):
    """The tests, on the newest of everything, with all of their cases: every combination of their parameters."""
    run_tests_on_newest(session)


@nox.session(python=NEWEST)
def docs(session):
    """The manual: its pages are built into site/, its blocks of code are run, and what it says of the code is compared.

    One test looks for answers in the site, in Chromium, and is skipped where there is none.
    """
    packages = [f"./plugins/tpk-{name}" for name in ("distributed", "estimator", "keras", "lmdb", "tensorflow1")]
    session.install("tensorflow==2.21.*", ".[docs]", *packages)
    # What Material says of the future of MkDocs is no warning about these pages.
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    # By test, not by file: nearly all of them are the pages, in one file.
    run_tests(session, *WORKERS, "--dist", "worksteal", "tests/manual", TPK_SITE=str(ROOT / "site"))


def build_horovod(session):
    """Build Horovod; return whether that is possible here."""
    missing = [tool for tool in ("g++", "cmake", "make") if shutil.which(tool) is None]
    if missing:
        session.warn(
            f"left out: trainings with Horovod, which is built by {', '.join(missing)}, and that is not here. "
            "`apt-get install g++ cmake make` gets them"
        )
        return False
    session.run("python", "-m", "tpk_horovod.build")
    return True


@nox.session(python=NEWEST)
def plugins(session):
    """Every package under plugins/, with its own tests; Horovod is built for that, which takes two minutes.

    One of tpk-mlflow opens pages in Chromium, and is skipped where there is none; one of tpk-prometheus likewise starts
    Debian's Pushgateway.
    """
    # Together, since some depend on others.
    session.install(".[test]", *(f"{package}[test]" for package in PACKAGES))
    for package in PACKAGES:
        if package.name == "tpk-distributed":  # `tests_newest` runs its tests.
            continue
        environment = {}
        if package.name == "tpk-horovod" and build_horovod(session):
            environment["TPK_HOROVOD_BUILT"] = "1"
        session.chdir(package)
        # These have many tests, or such as wait; and the processes that they start find their own ports.
        many = ("tpk-estimator", "tpk-horovod", "tpk-tensorflow1", "tpk-tensorpack")
        in_parallel = IN_PARALLEL if package.name in many else []
        run_tests(session, *in_parallel, **environment)
        session.chdir(ROOT)


@nox.session(python=NEWEST)
def examples(session):
    """The examples as a newcomer installs them, in a short form."""
    session.install(".[examples]", "./plugins/tpk-distributed", "./plugins/tpk-keras")
    directory = session.create_tmp()
    for run_dir in ("digits", "file", "repeated", "replicated", "collective", "keras", "resnet", "language"):
        shutil.rmtree(Path(directory, run_dir), ignore_errors=True)
    session.run("python", "examples/digits_convnet.py", "--max-epoch", "3", "--run-dir", f"{directory}/digits")
    replicated = ("--strategy", "replicated", "--devices", "2", "--run-dir", f"{directory}/replicated")
    session.run("python", "examples/digits_convnet.py", "--max-epoch", "3", *replicated)
    launched = ("tpk", "launch", "-n", "2", "examples/digits_convnet.py", "--strategy", "collective")
    session.run(*launched, "--max-epoch", "3", "--run-dir", f"{directory}/collective")
    session.run("tpk", "train", "examples/digits.toml", "max_epoch=1", f"run_dir={directory}/file")
    repeated = ("tpk", "launch", "-n", "2", "-m", "tpk", "train", f"{directory}/file/config.toml")
    session.run(*repeated, "trainer=collective", f"run_dir={directory}/repeated")
    session.run("python", "examples/keras_model_digits.py", "--max-epoch", "3", "--run-dir", f"{directory}/keras")
    for gan in ("gan_digits", "conditional_gan", "image_to_image"):
        shutil.rmtree(Path(directory, gan), ignore_errors=True)
        session.run("python", f"examples/{gan}.py", "--max-epoch", "2", "--run-dir", f"{directory}/{gan}")
    resnet = ("--image-size", "32", "--batch", "4", "--steps-per-epoch", "3", "--max-epoch", "1")
    session.run("python", "examples/resnet.py", *resnet, "--run-dir", f"{directory}/resnet")
    language = ("--units", "32", "--steps-per-epoch", "20", "--max-epoch", "1")
    session.run("python", "examples/char_language_model.py", *language, "--run-dir", f"{directory}/language")
    session.run("python", "examples/custom_trainer.py")
    session.run("python", "examples/any_loop.py")


@nox.session(python=NEWEST)
def release(session):
    """What would be published: built of all packages, looked at, and installed and used, wheel and source archive."""
    directory = Path(session.create_tmp(), "distributions")
    shutil.rmtree(directory, ignore_errors=True)
    session.install("build", "uv", "twine>=6", "hypothesis", "pytest>=8", "pytest-timeout")

    def build(package):
        session.run("python", "-m", "build", "--installer", "uv", "--outdir", str(directory), str(package), silent=True)

    with ThreadPoolExecutor(4) as several:  # Each mostly waits for the index of packages.
        list(several.map(build, (ROOT, *PACKAGES)))
    session.run("twine", "check", "--strict", *map(str, sorted(directory.iterdir())))
    for kind in ("*.whl", "*.tar.gz"):
        (built,) = (path for path in directory.glob(kind) if path.name.startswith("tpk_train-"))
        session.install("--reinstall-package", "tpk-train", str(built))
        session.run("tpk", "--version")
        session.run("pytest", "tests/release", env={"TPK_DISTRIBUTIONS": str(directory)})
        with session.chdir(directory):
            session.run("python", str(ROOT / "examples" / "any_loop.py"))


@nox.session(python=NEWEST)
def faults(session):
    """At least a hundred kills at random instants, and half as many preemptions; some ten minutes."""
    session.install("tensorflow-cpu==2.21.*", *ON_CPUS, *TEST_TOOLS)
    session.install("--no-deps", ".")
    run_tests(session, "tests/faults", TPK_FAULTS="100")


@nox.session(python=NEWEST)
def hosts(session):
    """Trainings on several hosts, which are network namespaces, in the long form; sessions of CI run a short one.

    They are skipped, with the reason, without root or iproute2, and some without SLURM, sshd, iptables or Horovod.
    """
    session.install(".[test]", "./plugins/tpk-distributed[test]", "./plugins/tpk-horovod[test]")
    build_horovod(session)
    with session.chdir("plugins/tpk-distributed"):
        tests = [f"tests/test_{name}.py" for name in ("hosts", "cut_link", "launch_on_hosts", "slurm")]
        run_tests(session, *tests, TPK_HOSTS="all")
    with session.chdir("plugins/tpk-horovod"):
        run_tests(session, "tests/test_horovod_hosts.py", TPK_HOSTS="all")


@nox.session(python=NEWEST)
def loaders(session):
    """Other people's data loaders as dataflows; that is some 3 GB, most of it CUDA for torch."""
    session.install("tensorflow-cpu==2.21.*", *ON_CPUS, *TEST_TOOLS)
    session.install("datasets>=4", "grain>=0.2.12", "torch>=2.6", "torchdata>=0.11")
    session.install("--no-deps", ".")
    run_tests(session, "tests/dataflow/test_loaders.py", "tests/dataflow/test_loaders_train.py")


@nox.session(python=OLDEST)
def port_oracle(session):
    """Scripts with tensorpack 0.11, and with the package that runs them without it."""
    session.install("tensorflow-cpu==2.15.1", "numpy==1.26.*", "pluggy==1.6.0", *ON_CPUS, *DATA_FORMATS, *TEST_TOOLS)
    # What tensorpack imports but does not ask for, and tensorpack itself, which asks for nothing.
    session.install("tensorpack==0.11", "msgpack-numpy", "opencv-python-headless", "tabulate", "termcolor")
    session.install("libcst", "pyzmq", "tf_slim>=1.1")  # for the converter, tpk-zmq and tpk-tensorflow1
    ported = [f"./plugins/tpk-{name}" for name in ("zmq", "distributed", "keras", "lmdb", "tensorflow1", "tensorpack")]
    session.install("--no-deps", ".", *ported)
    session.chdir("plugins/tpk-tensorpack")
    run_tests(session, "tests/oracle")


def python_with(session, version, name, *packages):
    """Return the path of a Python of another version, in an environment of its own with these packages."""
    python = shutil.which(f"python{version}")
    if python is None:
        session.error(f"there is no python{version} on the path: `pyenv install {version}` gets it")
    environment = Path(session.create_tmp(), name).absolute()
    if not environment.exists():
        session.run(python, "-m", "venv", str(environment), external=True)
    installed = str(environment / "bin" / "python")
    session.run(installed, "-m", "pip", "install", "--quiet", *packages, external=True)
    return installed


def tensorflow_1(session):
    """Return the path of a Python with TensorFlow 1.15 itself."""
    # NumPy and protobuf as of its time, for which it has no upper bounds; the last SciPy with functions for images.
    packages = ("tensorflow==1.15.5", "numpy<1.19", "protobuf<3.21", "scipy==1.1", "pillow<10", "pandas<1.4")
    return python_with(session, OF_TENSORFLOW_1, "tensorflow1", *packages)


@nox.session(python=NEWEST)
def tf1_oracle(session):
    """Cases and scripts with TensorFlow 1.15 itself, on Python 3.7, and with the package that runs them without it."""
    session.install("tensorflow-cpu==2.21.*", *ON_CPUS, *TEST_TOOLS, "tf_slim>=1.1")
    session.install("--no-deps", ".", "./plugins/tpk-tensorflow1")
    in_oracle = tensorflow_1(session)
    session.chdir("plugins/tpk-tensorflow1")
    run_tests(session, "tests/oracle", TPK_TENSORFLOW_1_15=in_oracle)


@nox.session(python=NEWEST)
def estimator_oracle(session):
    """Programs with the Estimators of TensorFlow 2.15 and 1.15 themselves, and with the package that replaces them."""
    session.install("tensorflow-cpu==2.21.*", *ON_CPUS, *TEST_TOOLS, "pandas", "tf_slim>=1.1")
    session.install("--no-deps", ".", "./plugins/tpk-tensorflow1", "./plugins/tpk-estimator")
    oracles = {
        "TPK_ESTIMATOR_2_15": python_with(session, OLDEST, "estimator", "tensorflow-cpu==2.15.1", "pandas"),
        "TPK_TENSORFLOW_1_15": tensorflow_1(session),
    }
    session.chdir("plugins/tpk-estimator")
    run_tests(session, "tests/oracle", **oracles)


@nox.session(python=NEWEST)
def bench(session):
    """The benchmarks, with what they compare; on a quiet machine."""
    session.install("tensorflow==2.21.*", ".[trackers]", "matplotlib")
    # What tensorpack imports but does not ask for, and tensorpack itself, which asks for nothing.
    session.install("tensorpack==0.11", "msgpack", "msgpack-numpy", "psutil", "pyzmq", "tabulate", "termcolor")
    session.install("torch>=2.6", "grain", "opencv-python-headless>=4.8")
    packages = ("distributed", "horovod", "zmq", "keras", "lmdb", "tensorflow1", "tensorpack")
    session.install(*(f"./plugins/tpk-{name}" for name in packages))
    session.run("python", "-m", "tpk_horovod.build")
    session.run("python", "tests/benchmarks/start_up.py")
    session.run("python", "tests/benchmarks/checkpoints.py")
    session.run("python", "tests/benchmarks/data_received.py")
    session.run("python", "tests/benchmarks/augmented_images.py")
    session.run("python", "tests/benchmarks/data_delivered.py")
    session.run("python", "tests/benchmarks/predictors.py")
    session.run("python", "tests/benchmarks/evaluation.py")
    session.run("python", "tests/benchmarks/towers.py")
    session.run("python", "tests/benchmarks/steps_in_a_run.py")
    session.run("python", "tests/benchmarks/callbacks_cost.py")
    session.run("python", "tests/benchmarks/precision.py")
    session.run("python", "tests/benchmarks/tf_cnn.py")
    session.run("python", "tests/benchmarks/processes.py")
    session.run("python", "tests/benchmarks/profiler_overhead.py")
    session.run("python", "tests/benchmarks/busy_step.py", "--load", "3")
    session.run("python", "tests/benchmarks/step_overhead.py", "--png", "step_overhead.png", *session.posargs)
