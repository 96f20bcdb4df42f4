"""The page of `lookalike serve` in a real browser: type, see, walk by keyboard, meet errors."""

import pathlib
import subprocess

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from chromium import chromium

ROOT = pathlib.Path(__file__).parents[2]
MODELS = ROOT / "crates/lookalike/tests/fixtures/models"
CITIES = ["Amsterdam", "Berlin", "Copenhagen", "Dublin", "Edinburgh", "Florence"]
SETTINGS = "--epochs 60 --hidden 16 --lr 0.02 --sampler full --min-documents 1 --preset plain -q"


class Service:
    """A service that can be ended and begun again at the same place."""

    def __init__(self, program, model):
        self.command = [program, "serve", model, "--max-wait", "60000"]
        self.address = "127.0.0.1:0"
        self.begin()

    def begin(self):
        arguments = [*self.command, "--listen", self.address]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()
        self.address = self.url.removeprefix("http://").rstrip("/")

    def end(self):
        self.process.terminate()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="session")
def texts(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    lines = [f"{name}\t{name}\n{name.lower()} city\t{name}\n" for name in CITIES]
    (folder / "cities.tsv").write_text("".join(lines))
    arguments = ["train", "cities.tsv", "--model", "cities", *SETTINGS.split()]
    subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True)
    service = Service(program, folder / "cities")
    yield service
    service.end()


@pytest.fixture(scope="session")
def numbers(program):
    service = Service(program, MODELS / "v4-plain" / "model")
    yield service
    service.end()


@pytest.fixture(scope="session")
def opened():
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(opened):
    opened.get_log("browser")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return opened


@pytest.fixture
def page(browser, texts):
    browser.get(texts.url)
    until(browser, lambda: browser.find_element(By.ID, "name").text == "cities")
    yield browser
    assert problems(browser) == []


def problems(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def until(browser, condition):
    return WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: condition())


def names(browser):
    script = "return [...document.querySelectorAll('#classes .class-name')].map(name => name.textContent)"
    return browser.execute_script(script)


def until_best(browser, name):
    """Waits for the answer to all that was typed: part of a word may be enough for
    the class, and the next answer makes the list anew."""
    at_rest = lambda: browser.find_element(By.ID, "classes").get_attribute("aria-busy") == "false"  # noqa: E731
    until(browser, lambda: at_rest() and names(browser)[:1] == [name])


def type_text(browser, text):
    browser.find_element(By.ID, "question").send_keys(text)


def shown(browser, name):
    return browser.find_element(By.ID, name).is_displayed()


def text_of(browser, name):
    return browser.find_element(By.ID, name).text


def test_answers_come_while_one_types(page):
    assert page.switch_to.active_element.get_attribute("id") == "question"
    assert shown(page, "empty") and not shown(page, "details")
    type_text(page, "Berl")
    until_best(page, "Berlin")
    type_text(page, Keys.BACKSPACE * 4 + "dublin c")
    until_best(page, "Dublin")
    assert sorted(names(page)) == CITIES
    first = page.find_element(By.CSS_SELECTOR, "#classes button")
    assert first.get_attribute("aria-pressed") == "true" and "%" in first.text
    share = float(page.execute_script("return arguments[0].style.getPropertyValue('--share')", first))
    assert abs(100 * share - float(first.text.split()[-1].rstrip("%"))) < 0.1
    assert "ms" in text_of(page, "timing")
    assert "Best: Dublin" in page.find_element(By.ID, "status").get_attribute("textContent")
    type_text(page, Keys.BACKSPACE * 8)
    until(page, lambda: shown(page, "empty"))
    assert names(page) == []


def test_features_and_lookalikes_of_the_chosen_class(page):
    type_text(page, "Berlin")
    until_best(page, "Berlin")
    assert text_of(page, "details-title") == "Why Berlin?"
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#lookalikes li")) == len(CITIES) - 1)
    rows = page.find_elements(By.CSS_SELECTOR, "#features tr")
    assert any("ber" in row.text for row in rows) and "biases" in rows[-1].text
    second = page.find_elements(By.CSS_SELECTOR, "#classes button")[1]
    other = names(page)[1]
    second.click()
    assert text_of(page, "details-title") == f"Why {other}?"
    assert second.get_attribute("aria-pressed") == "true"
    until(page, lambda: other not in text_of(page, "lookalikes") and "Berlin" in text_of(page, "lookalikes"))


def test_everything_by_keyboard(page):
    type_text(page, "Florence")
    until_best(page, "Florence")
    press = lambda *keys: ActionChains(page, duration=0).send_keys(*keys).perform()  # noqa: E731
    press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert text_of(page, "details-title") == f"Why {names(page)[1]}?"
    press(Keys.ARROW_UP, Keys.SPACE)
    assert text_of(page, "details-title") == "Why Florence?"
    press(Keys.ESCAPE)
    assert page.switch_to.active_element.get_attribute("id") == "question"
    press("Berlin")
    until_best(page, "Berlin")
    # The question, six answers, the model card.
    press(*[Keys.TAB] * 7, Keys.ENTER)
    assert "Software" in text_of(page, "card")


def test_an_answer_that_comes_late_leaves_the_keyboard_where_it_is(page):
    type_text(page, "Florenc")
    until_best(page, "Florence")
    # The answer to the last letter is held back until the second class has the focus.
    page.execute_script("""
        const fetched = window.fetch;
        window.fetch = (...wanted) => new Promise((answer) => { window.release = () => answer(fetched(...wanted)); });
    """)
    type_text(page, "e")
    press = lambda *keys: ActionChains(page, duration=0).send_keys(*keys).perform()  # noqa: E731
    press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    page.execute_script("window.release()")
    until_best(page, "Florence")
    assert page.switch_to.active_element.text.startswith(names(page)[1])


def test_what_the_model_does_not_know(page):
    type_text(page, "漢字")
    until(page, lambda: shown(page, "prior"))
    assert len(names(page)) == len(CITIES)


def test_what_is_typed_is_text(page):
    type_text(page, "<img src=x onerror=alert(1)> Berlin")
    until_best(page, "Berlin")
    assert page.find_elements(By.TAG_NAME, "img") == []


def test_a_service_that_is_gone_and_comes_back(browser, texts):
    browser.get(texts.url)
    type_text(browser, "Berlin")
    until_best(browser, "Berlin")
    texts.end()
    type_text(browser, Keys.BACKSPACE * 6 + "Dublin")
    until(browser, lambda: "does not answer" in text_of(browser, "problem"))
    assert browser.find_element(By.ID, "problem").get_attribute("role") == "alert"
    texts.begin()
    until_best(browser, "Dublin")
    assert not shown(browser, "problem")
    # The browser itself tells of the connections that failed, and of nothing else.
    assert all("ERR_" in problem for problem in problems(browser))


def test_a_model_of_numbers(browser, numbers):
    browser.get(numbers.url)
    until(browser, lambda: text_of(browser, "question-label") == "Features")
    type_text(browser, "3:0.5 x")
    until(browser, lambda: "“x” is not what was expected" in text_of(browser, "problem"))
    type_text(browser, Keys.BACKSPACE + "7:1")
    until(browser, lambda: len(names(browser)) > 1)
    assert not shown(browser, "problem") and "feature 3" in text_of(browser, "features")
    assert problems(browser) == []
    type_text(browser, " 3:1")
    until(browser, lambda: "feature 3 twice" in text_of(browser, "problem"))


def test_dark_and_narrow(page):
    background = lambda: page.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")  # noqa: E731
    light = background()
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    assert light == "rgba(255, 255, 255, 1)" and background() != light
    size = {"width": 360, "height": 700, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    type_text(page, "Copenhagen " + "x" * 300)
    until_best(page, "Copenhagen")
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360


def test_every_control_has_a_name(page):
    type_text(page, "Berlin")
    until_best(page, "Berlin")
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = [node for node in tree if node.get("role", {}).get("value") in ("textbox", "button", "link", "table")]
    # The question, the answers, the table of features.
    assert len(controls) == len(CITIES) + 2
    assert all(node["name"]["value"].strip() for node in controls)
