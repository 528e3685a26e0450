"""The page as a whole: keyboard, screens, themes, escaping, errors, tokens; in a real browser."""

import pytest
from page_browser import PageBrowser
from running_service import running
from selenium.webdriver.common.keys import Keys

from metaxc.catalog import Catalog
from metaxc.emmett import Emmett
from metaxc.serve.serve_settings import ServeSettings

SCRIPT = "<script>window.hurt = true</script><img src=x onerror='window.hurt = true'> cat"


def test_everything_works_with_the_keyboard(look):
    look.open("new", text="old horse")
    look.press(Keys.TAB)
    assert look.focused.get_attribute("id") == "skip"
    look.press(Keys.TAB, Keys.ARROW_RIGHT)
    look.settle("search")
    assert look.focused.get_attribute("id") == "tab-search"
    look.press(Keys.ARROW_LEFT)
    look.settle("new")
    for _ in range(40):
        look.press(Keys.TAB)
        if look.focused.get_attribute("role") == "switch":
            break
    outline = look.focused.value_of_css_property("outline-style")
    assert (look.focused.get_attribute("role"), outline) == ("switch", "solid")
    look.press(Keys.SPACE)
    look.until(lambda: look.all(".neighbour.off"))
    look.press("/")
    look.until(lambda: look.focused.get_attribute("id") == "query")
    look.press("old horse", Keys.ENTER)
    look.until(lambda: "q=old+horse" in look.driver.current_url)
    look.settle("search")
    for _ in range(40):
        look.press(Keys.TAB)
        if "result-text" in look.focused.get_attribute("class"):
            break
    chosen = look.focused.text
    look.press(Keys.ENTER)
    look.until(lambda: look.texts(".panel-text") == [chosen])
    look.driver.execute_script("document.getElementById('panel').focus()")
    look.press(Keys.ESCAPE)
    look.until(lambda: look.focused.text == chosen)
    assert not look.one("#panel-body").is_displayed()


@pytest.mark.parametrize("view", ["new", "search"])
def test_the_page_fits_a_narrow_screen(look, view):
    look.add("long", "a very long text " * 20 + "w" * 300, ["tag" * 20])
    look.resize(390, 844)
    look.open(view, text="wild pig " * 20, q="a very long text", item="long")
    look.until(lambda: look.all("#map svg") if view == "new" else look.all(".result .panel-text"))
    assert look.driver.execute_script("return document.documentElement.scrollWidth") == 390


def test_the_theme_follows_the_system_until_it_is_chosen(look):
    look.open("new", text="old horse")

    def ground():
        return look.one("body").value_of_css_property("background-color")

    light = ground()
    look.prefer("dark")
    dark = ground()
    assert dark != light
    look.click("#theme")
    assert (look.one("#theme").text, ground()) == ("theme: light", light)
    look.driver.refresh()
    assert ground() == light
    look.click("#theme")
    assert (look.one("#theme").text, ground()) == ("theme: dark", dark)
    look.click("#theme")
    assert look.one("#theme").text == "theme: system"


def test_a_text_that_is_a_script_is_shown_as_text(look):
    look.add("<b>id</b>", SCRIPT, ["<i>tag</i>"])
    look.open("search", q=SCRIPT, item="<b>id</b>")
    look.until(lambda: look.texts(".panel-text") == [SCRIPT])
    assert SCRIPT in look.texts(".result-text")
    assert "<i>tag</i>" in look.texts(".result .tag")
    look.open("new", text=SCRIPT, revealed=[SCRIPT])
    assert look.texts("#revealed-list .chip-text") == [SCRIPT]
    assert look.driver.execute_script("return window.hurt") is None
    assert not look.all("img[onerror]")


def test_no_request_leaves_the_service(look):
    look.asked()
    look.open("new", text="old horse")
    look.open("search", q="fresh lemon")
    asked = [url for url in look.asked() if not url.startswith("about:")]
    assert len(asked) > 10
    assert {url for url in asked if not url.startswith(f"{look.url}/")} == set()


def test_parts_have_roles_and_accessible_names(look):
    look.open("new", text="old horse")
    for selector, role, name in (
        (".tabs", "tablist", "Views"),
        ("#tab-new", "tab", "A new item"),
        ("#view-new", "tabpanel", "A new item"),
        ("#item-text", "textbox", "A new item's text"),
        ("#neighbours .switch", "switch", f"Use the neighbour {look.texts('.neighbour-text')[0]}"),
        ("#live", "status", ""),
        ("#add-id", "textbox", "Id"),
    ):
        part = look.one(selector)
        assert (part.aria_role, part.accessible_name) == (role, name)
    assert look.one("#tab-new").get_attribute("aria-selected") == "true"
    assert "neighbours" in look.one("#shares").accessible_name
    about = look.texts("#index-tip")[0]
    assert look.one("#index-kind").get_attribute("aria-describedby") == "index-tip"
    assert about


def test_an_error_of_the_service_is_shown(look):
    look.add("taken", "small bear")
    look.open("new", text="large bear")
    look.one("#add-id").clear()
    look.one("#add-id").send_keys("taken", Keys.ENTER)
    look.until(lambda: look.one("#banner").is_displayed())
    assert look.one("#banner").aria_role == "alert"
    assert "taken" in look.one("#banner dd").text
    assert all("409" in error for error in look.console_errors())
    look.click("#banner-close")
    assert not look.one("#banner").is_displayed()


def test_a_service_with_tokens_asks_for_one(trained, driver, tmp_path):
    settings = ServeSettings(tokens={"write": "w" * 20, "read": "r" * 20})
    with running(Catalog.create(tmp_path / "catalog", Emmett.load(trained)), settings) as url:
        look = PageBrowser(driver, url)
        driver.get("about:blank")
        driver.get(f"{url}/#new?text=grey+cat")
        look.until(lambda: look.focused.get_attribute("id") == "token")
        look.press("x" * 20, Keys.ENTER)
        look.until(lambda: look.one("#token-refused").is_displayed())
        look.until(lambda: look.focused.get_attribute("id") == "token")
        look.press("r" * 20, Keys.ENTER)
        look.until(lambda: look.all("#neighbours .neighbour"))
        look.click("#add-button")
        look.until(lambda: "may read but not write" in look.one("#banner").text)
        assert not look.one("#token-refused").is_displayed()
        driver.get("about:blank")
    errors = look.console_errors()
    assert errors
    assert all("401" in one or "403" in one for one in errors)


def test_a_read_only_service_hides_all_controls_that_write(trained, driver, tmp_path):
    Catalog.create(tmp_path / "catalog", Emmett.load(trained)).close()
    catalog = Catalog.open(tmp_path / "catalog", Emmett.load(trained), read_only=True)
    with running(catalog) as url:
        look = PageBrowser(driver, url)
        look.open("search", q="grey cat", item="cat-small")
        look.until(lambda: look.all("body.read-only") and look.all(".panel-text"))
        assert len(look.all("#view-search .writes")) > 1
        assert not any(part.is_displayed() for part in look.all(".writes"))
        driver.get("about:blank")
    assert look.console_errors() == []
