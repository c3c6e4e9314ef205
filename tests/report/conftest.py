"""A real browser for the tests of reports: pages may ask for nothing, and all that goes wrong is told."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-gl=angle --use-angle=swiftshader "
    "--enable-unsafe-swiftshader"
).split()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on the path")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser):
    """Opens a file; afterwards, nothing else may have been asked for, and nothing may have gone wrong."""
    contexts, complaints = [], []

    def opened(path, *, before=None, **settings):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | settings)
        contexts.append(context)
        page = context.new_page()
        address = path.as_uri()

        def guard(route):
            if route.request.url.partition("#")[0] == address:
                return route.continue_()
            complaints.append(f"asked for {route.request.url}")
            return route.abort()

        page.route(lambda url: not url.startswith("data:"), guard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        if before:
            page.add_init_script(before)
        page.goto(address)
        page.wait_for_selector("#frame[data-drawn]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
