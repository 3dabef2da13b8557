#!/usr/bin/env python3
"""Uses the chat page in a browser, as people do: browser.py WEFT MODEL [SCREENSHOTS]. Ends with 1 if anything is wrong.

It starts a `weft serve` of its own. Needs chromium with its driver, selenium, and axe, which audits the page's
accessibility; `./start --tests setup` installs them. Where one is missing it ends with 77, which ctest counts as skipped,
or with 1 where WEFT_REQUIRE is set. With SCREENSHOTS, a folder, pictures of the page are left there.
"""

import json
import pathlib
import shutil
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parents[2] / ".deps/python")]
from server import Server, end_without

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
    from selenium_axe_python import Axe
except ImportError as error:
    end_without(error)

DRIVER = shutil.which("chromedriver")
PATIENCE_S = 100
FRANCE = "What is the capital of France?"
HOSTILE = """## Two sums

Here is a **table** and `code`, <img src=x onerror="document.title='hit'"> and [a link](javascript:alert(1)):

| place | value |
|:------|------:|
| one   | 1.50  |
| two   | 22.75 |

1. first
   - inner
2. second

> quoted <script>document.title = "hit"</script>

```python
def total(values):
    return sum(values)  # <b>not bold</b>
```

![picture](http://example.com/x.png) and https://example.com/a_(b).
"""


class Page:
    """The page in a browser of its own."""

    def __init__(self, url, pictures):
        self.url, self.pictures = url, pictures
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.resize(1280, 860)
        self.browser.get(url)
        self.wait(lambda: self.one("#model").text != "")

    def resize(self, width, height):
        # A window can't be as narrow as a phone; the page can.
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def js(self, code, *arguments):
        return self.browser.execute_script(code, *arguments)

    def wait(self, condition):
        WebDriverWait(self.browser, PATIENCE_S, ignored_exceptions=()).until(lambda _: condition())

    def click(self, text):
        self.js("""const found = [...document.querySelectorAll('button')].filter(b => b.textContent === arguments[0] &&
                   b.offsetParent); found[found.length - 1].click()""", text)

    def wait_for_answer(self):
        self.wait(lambda: self.one("#send").is_displayed() and self.all(".message.assistant"))
        return self.all(".message.assistant")[-1].text

    def ask(self, question):
        self.one("#question").send_keys(question, Keys.ENTER)

    def picture(self, name):
        if self.pictures:
            self.browser.save_screenshot(str(self.pictures / f"{name}.png"))

    def set(self, **values):
        self.click("Settings")
        for name, value in values.items():
            self.js("document.getElementById(arguments[0]).value = arguments[1]", name, value)
        self.click("Save")

    def audit(self, where):
        axe = Axe(self.browser)
        axe.inject()
        found = [each for each in axe.run()["violations"] if each["impact"] in ("serious", "critical")]
        expect(not found, f"{where}: no findings of axe", json.dumps(found, indent=1)[:3000])


def expect(is_right, what, got=""):
    if not is_right:
        raise SystemExit(f"expected {what}, got: {got}")


def asks_and_counts(page):
    page.picture("light-empty")
    page.audit("empty page")
    page.set(temperature="0")
    page.ask(FRANCE)
    answer = page.wait_for_answer()
    expect("The capital of France is Paris." in answer, "Paris", answer)
    expect("tokens · " in answer and "tokens/s" in answer and "of prompt" in answer, "counts", answer)
    expect(page.one("#title").text == FRANCE, "the question as the title", page.one("#title").text)


def stops_edits_and_tries_again(page):
    # The likeliest answer is long on every machine; a drawn one may end before the click.
    page.set(max_completion_tokens="2000", temperature="0", system="Write at length.")
    page.ask("Tell me a very long story about a river.")
    page.wait(lambda: len(page.all(".message.assistant")[-1].text) > 40)
    page.picture("light-writing")
    page.one("#stop").click()
    answer = page.wait_for_answer()
    expect("Stopped." in answer, "Stopped.", answer)
    page.set(max_completion_tokens="8", temperature="0", system="")
    page.click("Try again")
    answer = page.wait_for_answer()
    expect("8 tokens" in answer and "The answer was cut" in answer, "a cut answer of 8 tokens", answer)
    page.set(max_completion_tokens="")
    page.click("Edit")
    field = page.one(".edit textarea")
    field.clear()
    field.send_keys("And of Italy?", Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: len(page.all(".message.user")) == 2 and "Italy" in page.all(".message.user")[-1].text)
    answer = page.wait_for_answer()
    expect("Rome" in answer, "Rome", answer)


def keeps_several_chats(page):
    page.click("New chat")
    expect(not page.all(".message"), "a new chat without messages")
    page.ask("What is 1 + 1?")
    page.wait_for_answer()
    page.browser.refresh()
    page.wait(lambda: len(page.all("#chats li")) == 2)
    page.click(FRANCE)
    expect(len(page.all(".message")) == 4, "four messages after a reload", len(page.all(".message")))


def shows_markdown_safely(page):
    page.js("""localStorage.setItem('weft.chat.m', JSON.stringify({id: 'm', title: 'Table and code', changed: Date.now(),
               messages: [{role: 'user', content: 'Show a table and code.'}, {role: 'assistant', content: arguments[0],
               stats: {tokens: 98, prompt: 31, first: 0.21, seconds: 1.4}}]}))""", HOSTILE)
    page.browser.refresh()
    page.wait(lambda: page.all("#chats li"))
    page.click("Table and code")
    body = ".message.assistant .body "
    cells = [each.text for each in page.all(body + "td")]
    expect(cells == ["one", "1.50", "two", "22.75"], "a table", cells)
    expect("return sum(values)  # <b>not bold</b>" in page.one(body + "pre").text, "code", page.one(body + "pre").text)
    expect([each.text for each in page.all(body + "ol > li > ul > li")] == ["inner"], "a list in a list")
    expect(not page.all(body + "img") and not page.all(body + "script"), "no nodes of the model's own")
    addresses = [each.get_attribute("href") for each in page.all(body + "a")]
    expect(addresses == ["http://example.com/x.png", "https://example.com/a_(b)"], "links to the web alone", addresses)
    expect(page.browser.title == "weft", "an untouched title", page.browser.title)


def looks_right_everywhere(page):
    for theme in ("light", "dark"):
        page.set(theme=theme)
        page.picture(f"{theme}-markdown")
        page.audit(theme)
        page.click("Settings")
        page.picture(f"{theme}-settings")
        page.audit(f"{theme} settings")
        page.click("Cancel")
    page.resize(360, 740)
    page.wait(lambda: not page.one("#sidebar").is_displayed())
    page.picture("phone-dark")
    page.audit("phone")
    width = page.js("return document.documentElement.scrollWidth")
    expect(width <= 360, "no sideways scrolling at 360 px", width)
    page.click("Chats")
    page.wait(lambda: page.one("#sidebar").is_displayed() and page.one("#sidebar").rect["x"] == 0)
    page.picture("phone-chats")
    page.click("Close")
    page.wait(lambda: not page.one("#sidebar").is_displayed())
    page.set(theme="light")
    page.picture("phone-light")
    page.resize(1280, 860)


def asks_nobody_else(page):
    names = page.js("return performance.getEntriesByType('resource').map(each => each.name)")
    foreign = [name for name in names if not name.startswith(page.url)]
    expect(not foreign, "requests to this server alone", foreign)
    logged = [each["message"] for each in page.browser.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]
    expect(not logged, "nothing in the browser's console", logged)


def main():
    if DRIVER is None:
        end_without("no chromedriver")
    weft, model, *more = sys.argv[1:]
    pictures = pathlib.Path(more[0]) if more else None
    with Server(weft, model) as server:
        page = Page(f"http://127.0.0.1:{server.port}/", pictures)
        try:
            for case in (asks_and_counts, stops_edits_and_tries_again, keeps_several_chats, shows_markdown_safely,
                         looks_right_everywhere, asks_nobody_else):
                case(page)
        except Exception:
            page.picture("failed")
            raise
        finally:
            page.browser.quit()


if __name__ == "__main__":
    main()
