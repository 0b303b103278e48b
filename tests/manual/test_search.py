"""The built manual in a browser: a question finds the page that answers it, and pages show as they should.

`TPK_SITE` in the environment is the folder in which `nox -s docs` has built it; `TPK_SCREENSHOTS` one for pictures.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SITE = os.environ.get("TPK_SITE")
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
DISK = Path(SITE or ".").resolve().as_uri()
"""Where the site is on disk."""
SECONDS = 60
"""How long a page may take to show what it has to."""

pytestmark = [
    pytest.mark.skipif(SITE is None, reason="`nox -s docs` builds the site that is looked at here"),
    pytest.mark.skipif(BROWSER is None, reason="there is no browser: apt-get install chromium-headless-shell"),
    pytest.mark.timeout(300),
]

ANSWERS = {
    "how do I install": "installation",
    "how do I resume": "howto/resume",
    "why is my loss NaN": "howto/debug",
    "how do I use two GPUs": "howto/devices",
    "what is a tower": "concepts/towers",
    "where is my best model": "howto/best-model",
    "how do I port tf.layers": "coming-from/tf-layers",
    "how do I write a callback and ship it": "plugins/callback",
    "why is it slow": "howto/profile",
    "how do I stop early": "howto/best-model",
    "how do I use a torch DataLoader": "howto/data",
    "how do I profile": "howto/profile",
    "what does this error mean": "reference/errors",
    # What else newcomers ask.
    "what is a step": "concepts/index",
    "what is an epoch": "concepts/index",
    "how do I evaluate on a validation set": "howto/best-model",
    "how do I load pretrained weights": "howto/fine-tuning",
    "how do I freeze layers": "howto/gradients",
    "how do I clip gradients": "howto/gradients",
    "how do I accumulate gradients": "howto/gradients",
    "fine-tune": "howto/fine-tuning",
    "tensorboard": "howto/tensorboard",
    "folder of images": "howto/images",
    "troubleshooting": "howto/troubleshooting",
    "weight decay": "howto/gradients",
    "out of memory": "howto/gpu",
    "mixed precision": "howto/gpu",
    "mixed precision on several devices": "howto/devices",
    "it hangs": "howto/debug",
    "how do I print a tensor": "howto/debug",
    "how do I make a run reproducible": "howto/reproducibility",
    "how do I save every 1000 steps": "howto/resume",
    "how do I train on several hosts": "howto/several-hosts",
    "SLURM": "howto/resume",
    "val_loss": "howto/best-model",
    "fit": "coming-from/keras",
    "bucketing": "howto/sequences",
    "padding": "howto/sequences",
    "TFRecord": "howto/sequences",
    "perplexity": "howto/sequences",
    "LSTM": "reference/api/layers.rnn_cell",
    "recurrent network": "howto/sequences",
    "confusion matrix": "howto/metrics",
    "how do I write my own metric": "howto/metrics",
    "reinforcement learning": "howto/custom-trainer",
    "how do I train with several losses": "howto/custom-trainer",
    "how do I turn off the progress bar": "howto/tracking",
    "warm up the learning rate": "howto/learning-rate",
    "export a SavedModel": "howto/predict",
    "jupyter": "howto/notebooks",
    "migrate from tensorpack": "coming-from/tensorpack",
    "stats.jsonl": "reference/files",
    "TPK_TRACE": "reference/environment",
    "ModelSaver": "reference/api/callbacks",
    # Words of errors, as they are copied from a terminal.
    "TowerError": "reference/errors",
    "a tensor has no value yet": "reference/errors",
    "created variables when it was called again": "reference/errors",
    "which nothing calls: did you mean before_run?": "reference/errors",
}
"""What people ask, and the page that answers it."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    """Where the site is served, on this host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def browser():
    # Not among what other tests of this folder need.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's own fences cannot be put up by root, who runs the tests in containers.
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=SECONDS * 1000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, address):
    """Return what opens a page of the site in a window; nothing may fail in it, nor be loaded from elsewhere."""
    failures, contexts = [], []

    def note_error(error):
        failures.append(error)

    def note_request(request):
        if not request.url.startswith((address, DISK, "data:", "blob:", "about:srcdoc")):
            failures.append(f"{request.url} is loaded")

    def open_page(path, site=address, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(SECONDS * 1000)
        page = context.new_page()
        page.on("pageerror", note_error)
        page.on("request", note_request)
        page.goto(f"{site}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert failures == []


def test_a_question_finds_the_page_that_answers_it(open_page, address):
    assert_answered(ANSWERS, open_page("index.html"), address)


def test_pages_on_disk_can_be_searched(open_page):
    # In a subdirectory, where the paths of scripts are relative.
    some = dict(list(ANSWERS.items())[::8])
    assert_answered(some, open_page("howto/index.html", DISK), DISK)


def assert_answered(answers, page, site):
    """Assert that each question finds its page among the first three."""
    results = page.locator(".md-search-result__item")
    field = page.get_by_role("textbox", name="Search")
    field.focus()
    page.get_by_text("Type to start searching").wait_for(state="attached")
    found = {}
    for question in answers:
        # Each key searches: so one key only, where nothing is left of the question before.
        field.fill(question[:-1])
        field.press(question[-1])
        results.first.wait_for(state="attached")
        links = results.locator("> a").evaluate_all("links => links.map(link => link.href)")
        pages = [link.removeprefix(f"{site}/").partition(".html")[0] for link in links]
        found[question] = list(dict.fromkeys(pages))[:3]
        field.fill("")
        field.press("Backspace")
        results.first.wait_for(state="detached")
    assert {question: found[question] for question, answer in answers.items() if answer not in found[question]} == {}


@pytest.mark.parametrize("path", ["index", "howto/resume", "plugins/hooks", "reference/errors", "performance"])
def test_a_page_fits_the_window_and_loads_nothing_from_elsewhere(open_page, tmp_path, path):
    pictures = Path(os.environ.get("TPK_SCREENSHOTS", tmp_path))
    for scheme in ("light", "dark"):
        for width in (1300, 390):
            page = open_page(f"{path}.html", color_scheme=scheme, viewport={"width": width, "height": 900})
            page.wait_for_load_state("networkidle")
            page.screenshot(path=pictures / f"{path.replace('/', '-')}-{scheme}-{width}.png")
            assert page.evaluate("document.documentElement.scrollWidth") == width
            colors = page.evaluate(COLORS)
            assert abs(brightness(colors["text"]) - brightness(colors["background"])) > 120, colors


COLORS = """() => {
    const of = (selector, property) => getComputedStyle(document.querySelector(selector))[property]
    return {text: of('.md-typeset', 'color'), background: of('body', 'backgroundColor')}
}"""


def brightness(color):
    """Return how bright a color of CSS is, as `rgb(…)` or `rgba(…)` name it, from 0 to 255."""
    red, green, blue = (float(part) for part in re.findall(r"[\d.]+", color)[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue
