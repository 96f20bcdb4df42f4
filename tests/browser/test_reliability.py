"""The page of `evaluate`, with its reliability chart, in a real browser."""

import subprocess

from selenium.webdriver.common.by import By
from test_experiments import data, opened  # noqa: F401


def test_the_reliability_chart_is_drawn(program, data, opened):  # noqa: F811
    run = {"cwd": data, "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([program, "train", "data/train.txt", "--model", "model", "--quiet"], **run)
    page = ["--page", "reliability.html"]
    subprocess.run([program, "evaluate", "model", "data/test.txt", *page], **run)
    opened.get_log("browser")
    opened.get((data / "reliability.html").as_uri())
    lines = opened.find_elements(By.CSS_SELECTOR, "#chart-1 .series path.line")
    assert len(lines) == 2 and all(line.is_displayed() for line in lines)
    facts = opened.find_element(By.CSS_SELECTOR, ".facts").text
    assert "ECE" in facts and "Brier" in facts
    assert opened.find_elements(By.CSS_SELECTOR, "table.sortable tbody tr")
    assert [entry for entry in opened.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
