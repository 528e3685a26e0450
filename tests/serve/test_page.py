"""The page in a real browser, on the real service."""

import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install metaxc[dev]")

from looking import CHROMIUM, DRIVER, Looking, browser
from selenium.webdriver.common.keys import Keys
from served import running

from metaxc.catalog import Catalog, CatalogSettings
from metaxc.emmett import Emmett
from metaxc.serve.settings import ServeSettings

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium is not installed: apt install chromium chromium-driver"
)

TORN = "young goat with a large fox"  # of two minds: neighbours and a first click move it
SCRIPT = "<script>window.hurt = true</script><img src=x onerror='window.hurt = true'> cat"


@pytest.fixture(scope="module")
def site(trained, shop, tmp_path_factory):
    """A service whose items are observed after two clicks."""
    folder = tmp_path_factory.mktemp("page") / "catalog"
    settings = CatalogSettings(observe_after=2)
    catalog = Catalog.create(
        folder, Emmett.load(trained), settings=settings, queries=shop.train.queries.texts
    )
    with running(catalog) as url:
        yield url


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@pytest.fixture
def look(site, driver):
    """A wide, light screen; what the console says at the end is an error of the page."""
    look = Looking(driver, site)
    look.resize(1280)
    look.prefer("light")
    look.complaints()
    yield look
    assert look.complaints() == []


def percent(share):
    return f"{share:.1f} %".replace("-", "−").replace("−0.0 %", "0.0 %")


def add(look, name, text, tags=()):
    look.post("/v1/items", {"items": [{"id": name, "text": text, "tags": list(tags)}]})


def test_a_new_items_neighbours_appear_while_typing(look):
    look.open("new", text="grey cat")
    look.write(TORN)
    made = look.post("/v1/preview", {"text": TORN})["explanation"]
    assert look.texts("#neighbours .neighbour-text") == [one["text"] for one in made["neighbours"]]
    assert look.texts("#neighbours .is-share .meter-number") == [
        percent(one["share"]) for one in made["neighbours"]
    ]
    shares = [made[part] for part in ("text_share", "neighbour_share", "learnt_share", "revealed_share")]
    assert look.texts("#shares-legend b") == [percent(share) for share in shares]
    assert (
        len(look.all("#map .is-text"))
        == len(look.all("#map .is-meta"))
        == len(look.all("#map .map-arrow"))
        == 1
    )
    assert len(look.all("#map .is-neighbour")) == len(made["neighbours"])
    assert look.texts("#stages li > span:first-child") == ["encode", "select", "generate", "reach", "map"]


def test_a_neighbour_switched_off_stays_to_be_seen_and_all_is_made_anew(look):
    look.open("new", text=TORN)
    before, first = look.texts("#shares-legend b"), look.one("#neighbours .switch")
    name = look.texts("#neighbours .id")[0]
    first.click()
    look.until(lambda: look.all(".neighbour.off"))
    look.settle("new")
    told = look.post("/v1/preview", {"text": TORN, "without": [name]})
    assert [one["id"] for one in told["off"]] == [name]
    assert look.texts(".neighbour.off .id") == [name]
    assert look.texts(".neighbour.off .brought") == ["switched off"]
    assert not look.one(".neighbour.off .switch").is_selected()
    assert look.focused == first
    assert look.texts("#neighbours .neighbour:not(.off) .id") == [
        one["id"] for one in told["explanation"]["neighbours"]
    ]
    after = look.texts("#shares-legend b")
    assert after != before
    assert after[1] == percent(told["explanation"]["neighbour_share"])
    look.click("#all-on")
    look.until(lambda: look.texts("#shares-legend b") == before)
    assert not look.all(".neighbour.off")


def test_queries_are_marked_gained_lost_and_kept_as_the_service_says(look):
    look.open("new", text=TORN)
    look.one("#revealed").send_keys("fresh lemon", Keys.ENTER)
    look.until(lambda: "brought by “fresh lemon”" in look.texts("#neighbours .brought"))
    look.settle("new")
    told = look.post("/v1/preview", {"text": TORN, "revealed": ["fresh lemon"]})
    assert {one["change"] for one in told["reached"]} == {"gained", "lost", "kept"}
    look.click("#reach-more")
    for column, field in (("encoder", "encoder_rank"), ("meta", "meta_rank")):
        ranked = sorted(
            (one for one in told["reached"] if one[field]),
            key=lambda one: (one["change"] == "kept", one[field]),
        )
        cells = [
            look.texts(f"#reached-{column} .{cell}") for cell in ("rank-number", "reached-query", "change")
        ]
        expected = [(str(one[field]), one["query"], one["change"]) for one in ranked]
        assert list(zip(*cells, strict=True)) == expected
    counts = [
        sum(one["change"] == change for one in told["reached"]) for change in ("gained", "lost", "kept")
    ]
    assert look.texts("#tally b") == [f"+{counts[0]}", str(counts[1]), str(counts[2])]
    assert f"of {told['pool']} known queries" in look.texts("#tally")[0]


def test_a_late_answer_to_an_older_text_is_dropped(look):
    look.open("new", text="grey cat")
    look.driver.execute_script(
        """const real = window.fetch; window.held = [];
        window.fetch = (address, options) => options.body?.includes("old horse")
          ? new Promise((answer) => window.held.push({ options, answer: () => answer(real(address, { ...options, signal: null })) }))
          : real(address, options);"""
    )
    field = look.one("#item-text")
    look.driver.execute_script("arguments[0].select()", field)
    field.send_keys("old horse")
    look.until(lambda: look.driver.execute_script("return window.held.length"))
    look.write("young duck")
    shown = look.texts("#neighbours .id")
    assert look.driver.execute_script("return window.held[0].options.signal.aborted")
    look.driver.execute_async_script(
        "const done = arguments[0]; window.held[0].answer(); window.fetch('/v1/about', {}).then(() => setTimeout(done, 0))"
    )
    assert look.texts("#neighbours .id") == shown
    assert shown[0].startswith("duck")


def test_an_added_item_is_found_by_the_next_search(look):
    look.open("new", text="grey cat with a hat")
    assert look.one("#add-id").get_attribute("value").startswith("grey-cat-with-a-hat-")
    look.one("#add-id").clear()
    look.one("#add-id").send_keys("hats/grey cat")
    look.one("#add-tag").send_keys("hats", Keys.ENTER)
    look.click("#add-button")
    look.click("#see-added")
    look.settle("search")
    look.until(lambda: "hats/grey cat" in look.texts("#results .id"))
    assert look.texts(".result.selected .id") == ["hats/grey cat"]
    assert look.texts(".result.selected .tag") == ["hats"]
    look.until(lambda: look.texts(".panel-text") == ["grey cat with a hat"])
    assert look.texts(".step.present .step-name") == ["novel"]
    look.one("#tag-filter").send_keys("hats", Keys.ENTER)
    look.until(lambda: look.texts("#results .id") == ["hats/grey cat"])
    look.click("[data-state=observed].toggle")
    look.until(lambda: look.texts("#results .empty"))


def test_clicks_lead_an_item_through_its_life_and_back(look):
    add(look, "life", "grey cat of the house")
    look.open("search", q="fresh lemon", k=100, item="life")
    look.until(lambda: look.all("#panel-neighbours .neighbour"))
    before = look.texts("#panel-neighbours .neighbour-text")
    click = ".result.selected .click"

    look.click(click)
    look.until(lambda: look.texts(".step.present .step-name") == ["clicked"])
    assert look.texts(".step.present .step-detail") == ["1 of 2 clicks"]
    came = look.texts(".compared-row[data-change=gained] .neighbour-text")
    assert came
    assert not set(came) & set(before)
    assert set(look.texts(".compared-row:not([data-change=gained]) .neighbour-text")) == set(before)
    look.until(lambda: look.texts(".result.selected .badge") == ["clicked"])

    look.click(click)
    look.until(lambda: look.texts(".step.present .step-name") == ["observed"])
    look.until(lambda: look.texts(".result.selected .badge") == ["observed"])

    for state in ("clicked", "novel"):
        look.click(".undo, .clicks button")
        look.until(lambda state=state: look.texts(".step.present .step-name") == [state])
    assert not look.all(".clicks")
    look.until(lambda: look.texts(".result.selected .badge") == ["novel"])
    look.settle("search")
    look.open("search", q="fresh lemon", k=100, item="life")
    look.until(lambda: look.texts("#panel-neighbours .neighbour-text") == before)


def test_an_item_is_deleted_after_a_question_in_the_page(look):
    add(look, "a/b c?d#e", "small wolf with a name to be escaped")
    look.open("search", item="a/b c?d#e")
    look.click("#delete")
    look.press(Keys.ESCAPE)
    look.until(lambda: look.one("#delete").is_displayed())
    look.click("#delete")
    assert look.focused.get_attribute("id") == "delete-yes"
    look.press(Keys.ENTER)
    look.until(lambda: "Deleted a/b c?d#e" in look.texts("#live"))
    assert "item=" not in look.driver.current_url
    found = look.post("/v1/search", {"queries": ["small wolf"], "k": 100})["answers"][0]["hits"]
    assert "a/b c?d#e" not in {hit["id"] for hit in found}


def test_the_keyboard_alone_is_enough(look):
    look.open("new", text=TORN)
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
def test_nothing_is_wider_than_a_telephone(look, view):
    add(look, "long", "a very long text " * 20 + "w" * 300, ["tag" * 20])
    look.resize(390, 844)
    look.open(view, text="wild pig " * 20, q="a very long text", item="long")
    look.until(lambda: look.all("#map svg") if view == "new" else look.all(".result .panel-text"))
    assert look.driver.execute_script("return document.documentElement.scrollWidth") == 390


def test_dark_is_the_systems_choice_or_ones_own(look):
    look.open("new", text=TORN)

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
    add(look, "<b>id</b>", SCRIPT, ["<i>tag</i>"])
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
    look.open("new", text=TORN)
    look.open("search", q="fresh lemon")
    asked = [url for url in look.asked() if not url.startswith("about:")]
    assert len(asked) > 10
    assert {url for url in asked if not url.startswith(f"{look.url}/")} == set()


def test_parts_say_what_they_are(look):
    look.open("new", text=TORN)
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


def test_an_error_is_told_in_the_services_words(look):
    add(look, "taken", "small bear")
    look.open("new", text="large bear")
    look.one("#add-id").clear()
    look.one("#add-id").send_keys("taken", Keys.ENTER)
    look.until(lambda: look.one("#banner").is_displayed())
    assert look.one("#banner").aria_role == "alert"
    assert "taken" in look.one("#banner dd").text
    assert all("409" in complaint for complaint in look.complaints())
    look.click("#banner-close")
    assert not look.one("#banner").is_displayed()


def test_a_service_with_tokens_asks_for_one(trained, driver, tmp_path):
    settings = ServeSettings(write_token="w" * 20, read_token="r" * 20)
    with running(Catalog.create(tmp_path / "catalog", Emmett.load(trained)), settings) as url:
        look = Looking(driver, url)
        driver.get("about:blank")
        driver.get(f"{url}/#new?text=grey+cat")
        look.until(lambda: look.focused.get_attribute("id") == "token")
        look.press("x" * 20, Keys.ENTER)
        look.until(lambda: look.one("#token-refused").is_displayed())
        look.until(lambda: look.focused.get_attribute("id") == "token")
        look.press("r" * 20, Keys.ENTER)
        look.until(lambda: look.all("#neighbours .neighbour"))
        look.click("#add-button")
        look.until(lambda: "may read, not write" in look.one("#banner").text)
        driver.get("about:blank")
    look.complaints()


def test_a_read_only_service_offers_no_writing(trained, driver, tmp_path):
    Catalog.create(tmp_path / "catalog", Emmett.load(trained)).close()
    catalog = Catalog.open(tmp_path / "catalog", Emmett.load(trained), read_only=True)
    with running(catalog) as url:
        look = Looking(driver, url)
        look.open("search", q="grey cat", item="cat-small")
        look.until(lambda: look.all("body.read-only") and look.all(".panel-text"))
        assert len(look.all("#view-search .writes")) > 1
        assert not any(part.is_displayed() for part in look.all(".writes"))
        driver.get("about:blank")
    assert look.complaints() == []
