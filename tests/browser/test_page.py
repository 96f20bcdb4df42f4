"""The report in a real browser: what a reader sees, presses and sorts. See README.md."""

import subprocess

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from chromium import chromium

METHODS = 7


@pytest.fixture(scope="session")
def page(programs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "sample.html"
    subprocess.run([programs / "examples" / "sample_page", path], check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def opened():
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(opened, page):
    opened.get_log("browser")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    opened.get(page.as_uri())
    yield opened
    problems = [entry for entry in opened.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert problems == []


def first_chart(browser):
    return browser.find_element(By.CSS_SELECTOR, "#chart-1")


def points_of(browser, figure, series):
    script = "return JSON.parse(arguments[0].querySelector('script').textContent)[arguments[1]]"
    return browser.execute_script(script, figure, series)


def hover_over(browser, figure, x, y):
    """Moves the pointer to a place given in the drawing's own units."""
    svg = figure.find_element(By.CSS_SELECTOR, ".plot > svg")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    width, height = map(float, svg.get_dom_attribute("viewBox").split()[2:])
    box = svg.rect
    move = ActionChains(browser, duration=0)
    move.move_to_element_with_offset(svg, (x / width - 0.5) * box["width"], (y / height - 0.5) * box["height"])
    move.perform()
    return figure.find_element(By.CSS_SELECTOR, ".tip")


def test_every_series_is_drawn(browser):
    figure = first_chart(browser)
    lines = figure.find_elements(By.CSS_SELECTOR, ".series path.line")
    bands = figure.find_elements(By.CSS_SELECTOR, ".series path.band")
    assert len(lines) == METHODS and len(bands) == METHODS
    for line in lines:
        assert line.is_displayed() and line.get_attribute("d").count("L") > 10
    looks = {(line.value_of_css_property("stroke"), line.get_attribute("stroke-dasharray")) for line in lines}
    assert len(looks) == METHODS
    assert len(browser.find_elements(By.CSS_SELECTOR, "figure.chart .plot > svg")) == 5


def test_legend_hides_and_shows_a_line(browser):
    figure = first_chart(browser)
    button = figure.find_elements(By.CSS_SELECTOR, ".legend button")[1]
    line = figure.find_elements(By.CSS_SELECTOR, ".series path.line")[1]
    assert button.text == "LSH Embedding" and button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and not line.is_displayed()
    others = figure.find_elements(By.CSS_SELECTOR, ".series path.line")
    assert sum(other.is_displayed() for other in others) == METHODS - 1
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "true" and line.is_displayed()


def test_pointer_shows_the_nearest_value(browser):
    figure = first_chart(browser)
    series = points_of(browser, figure, 1)
    x, y, at, value, spread = series["points"][-6]
    tip = figure.find_element(By.CSS_SELECTOR, ".tip")
    assert not tip.is_displayed()
    hover_over(browser, figure, x, y)
    assert tip.is_displayed()
    for words in ["LSH Embedding", at, value, spread]:
        assert words in tip.text
    assert figure.find_element(By.CSS_SELECTOR, ".cross circle").is_displayed()
    assert float(figure.find_element(By.CSS_SELECTOR, ".cross line").get_dom_attribute("x1")) == x
    ActionChains(browser, duration=0).move_to_element(browser.find_element(By.TAG_NAME, "h2")).perform()
    assert not tip.is_displayed()


def test_a_hidden_line_does_not_answer(browser):
    figure = first_chart(browser)
    x, y, *_ = points_of(browser, figure, 1)["points"][-6]
    figure.find_elements(By.CSS_SELECTOR, ".legend button")[1].click()
    tip = hover_over(browser, figure, x, y)
    assert tip.is_displayed() and "LSH Embedding" not in tip.text


def test_series_with_the_same_x_answer_together(browser):
    figure = browser.find_element(By.CSS_SELECTOR, "#chart-2")
    x, y, *_ = points_of(browser, figure, 0)["points"][-3]
    tip = hover_over(browser, figure, x, y)
    assert len(tip.find_elements(By.CSS_SELECTOR, ".value")) == METHODS


def test_a_bar_answers_along_its_height(browser):
    figure = browser.find_element(By.CSS_SELECTOR, "#chart-3")
    series = points_of(browser, figure, 0)
    x, _, at, value, _ = series["points"][0]
    ground = series["points"][-1][1]
    tip = hover_over(browser, figure, x, ground)
    assert at in tip.text and value in tip.text


def test_arrow_keys_walk_along_a_chart(browser):
    figure = first_chart(browser)
    svg = figure.find_element(By.CSS_SELECTOR, ".plot > svg")
    browser.execute_script("arguments[0].focus()", svg)
    keys = ActionChains(browser, duration=0)
    keys.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
    tip = figure.find_element(By.CSS_SELECTOR, ".tip")
    assert points_of(browser, figure, 1)["points"][1][3] in tip.text
    ActionChains(browser, duration=0).send_keys(Keys.ESCAPE).perform()
    assert not tip.is_displayed()


def column(table, place):
    return [row.find_elements(By.TAG_NAME, "td")[place].text for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]


def test_headers_sort_numbers_with_words_last(browser):
    table = browser.find_elements(By.CSS_SELECTOR, "table.sortable")[0]
    header = table.find_elements(By.TAG_NAME, "th")[2]
    before = column(table, 2)
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(table, 2) == ["5", "6", "6", "8", "41", "Fail", "Fail"]
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert column(table, 2) == ["41", "8", "6", "6", "5", "Fail", "Fail"]
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "none" and column(table, 2) == before


def test_headers_sort_words_and_units(browser):
    table = browser.find_elements(By.CSS_SELECTOR, "table.sortable")[1]
    headers = table.find_elements(By.TAG_NAME, "th")
    headers[0].find_element(By.TAG_NAME, "button").click()
    assert column(table, 0) == sorted(column(table, 0))
    headers[6].find_element(By.TAG_NAME, "button").click()
    assert headers[0].get_attribute("aria-sort") == "none"
    # Sorted by the durations themselves, not by their digits: 21 min is less than 1.4 h.
    assert column(table, 6) == ["21.0 min", "29.9 min", "1.4 h", "2.9 h", "3.9 h", "Fail", "Fail"]


def colour(browser, selector, name):
    return browser.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)


def test_dark_mode_repaints_page_and_lines(browser):
    def emulate(media, scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
        return colour(browser, "body", "background-color"), colour(browser, "#chart-1 .line", "stroke")

    light, dark = emulate("screen", "light"), emulate("screen", "dark")
    assert light[0] == "rgba(255, 255, 255, 1)"
    assert dark[0] != light[0] and dark[1] != light[1]
    # Paper is white, whatever the screen prefers.
    assert emulate("print", "dark") == light


def test_a_narrow_window_does_not_scroll_sideways(browser):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 390


def test_nothing_is_loaded(browser):
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_labels_do_not_overlap(browser):
    overlaps = browser.execute_script(
        """
        const found = [];
        for (const svg of document.querySelectorAll(".plot > svg")) {
          const texts = [...svg.querySelectorAll(".axis text:not([transform])")].filter(text => text.textContent);
          const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
          boxes.forEach(([a, first], place) => boxes.slice(place + 1).forEach(([b, second]) => {
            if (first.left < second.right && second.left < first.right
              && first.top + 3 < second.bottom && second.top + 3 < first.bottom) found.push([a, b]);
          }));
          const frame = svg.getBoundingClientRect();
          for (const [a, box] of boxes) {
            if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push([a, "edge"]);
          }
        }
        return found;
        """
    )
    assert overlaps == []
