"""The two views of the page, in a real browser on the real service."""

from page_browser import PageBrowser
from running_service import running
from selenium.webdriver.common.keys import Keys

from metaxc.catalog import Catalog
from metaxc.emmett import Emmett

AMBIGUOUS = "young goat with a large fox"  # its neighbours and a first click change its vector


def percent(share):
    return f"{share:.1f} %".replace("-", "−").replace("−0.0 %", "0.0 %")


def test_the_page_begins_with_a_novel_item_of_the_catalog_and_says_what_it_is(look):
    look.open("new")
    text = look.one("#item-text").get_property("value")
    examples = look.texts("#examples .example")
    novel = {item["text"] for item in look.get("/v1/items", state="novel")["items"]}
    assert (len(examples), text) == (3, examples[0])
    assert set(examples) <= novel
    preview = look.post("/v1/preview", {"text": text})["explanation"]["neighbours"]
    assert look.texts("#neighbours .id") == [one["id"] for one in preview]
    look.click("#examples li:nth-child(2) .example")
    look.until(lambda: f'preview("{examples[1]}")' in look.texts("#as-python")[0])
    assert look.one("#item-text").get_property("value") == examples[1]
    assert look.texts(".lead")[0].startswith("An item that nobody has clicked yet is found through")


def test_the_first_click_is_one_step_away(look):
    """The link goes to a search in which the example is opened, so that one press of its button shows the change."""
    look.open("new")
    text = look.one("#item-text").get_property("value")
    reached = look.post("/v1/preview", {"text": text})["reached"]
    query = next(one["query"] for one in reached if one["meta_rank"])
    look.click("#story")
    look.settle("search")
    assert look.one("#query").get_property("value") == query
    assert look.texts("#panel .panel-text") == [text]
    assert look.texts("#panel .step.present .step-name") == ["novel"]
    look.click(".result.selected .click")
    look.until(lambda: look.texts("#panel .step.present .step-name") == ["clicked"])
    look.click("#panel .undo")
    look.until(lambda: look.texts("#panel .step.present .step-name") == ["novel"])


def test_the_header_has_only_states_that_occur_with_the_numbers_of_the_command_line(look):
    look.open("new")
    about = look.get("/v1/about")
    present = [state for state in ("novel", "clicked", "observed") if about["items"][state]]
    assert [node.get_attribute("data-state") for node in look.all("#counts li")] == present
    told = look.one("#counts [data-state=novel]").get_attribute("title")
    assert told == f"When the model was trained: {about['novel_items']['held_out']} held out for the test"


def test_an_item_that_no_query_finds_has_one_sentence_in_place_of_zeros(trained, driver, tmp_path):
    catalog = Catalog.create(tmp_path / "catalog", Emmett.load(trained), queries=["fresh bread"])
    with running(catalog) as url:
        look = PageBrowser(driver, url)
        texts = [item["text"] for item in look.get("/v1/items", limit=100)["items"]]
        text = next(one for one in texts if not look.post("/v1/preview", {"text": one})["reached"])
        look.open("new", text=text)
        assert not look.one("#tally").is_displayed()
        assert not look.one("#reach-columns").is_displayed()
        assert "None of the known queries (1)" in look.texts("#reach-none")[0]


def test_a_catalog_that_knows_no_queries_says_so(trained, driver, tmp_path):
    with running(Catalog.create(tmp_path / "catalog", Emmett.load(trained))) as url:
        look = PageBrowser(driver, url)
        look.open("new")
        look.settle("new")
        assert "knows no queries" in look.texts("#reach-none")[0]
        assert not look.one("#tally").is_displayed()
        assert not look.one("#reach-columns").is_displayed()


def test_a_new_items_neighbours_appear_while_typing(look):
    look.open("new", text="grey cat")
    look.write(AMBIGUOUS)
    made = look.post("/v1/preview", {"text": AMBIGUOUS})["explanation"]
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


def test_a_neighbour_that_is_switched_off_stays_listed_and_everything_is_recomputed(look):
    look.open("new", text=AMBIGUOUS)
    before, first = look.texts("#shares-legend b"), look.one("#neighbours .switch")
    name = look.texts("#neighbours .id")[0]
    first.click()
    look.until(lambda: look.all(".neighbour.off"))
    look.settle("new")
    preview = look.post("/v1/preview", {"text": AMBIGUOUS, "without": [name]})
    assert [one["id"] for one in preview["off"]] == [name]
    assert look.texts(".neighbour.off .id") == [name]
    assert look.texts(".neighbour.off .brought") == ["switched off"]
    assert not look.one(".neighbour.off .switch").is_selected()
    assert look.focused == first
    assert look.texts("#neighbours .neighbour:not(.off) .id") == [
        one["id"] for one in preview["explanation"]["neighbours"]
    ]
    after = look.texts("#shares-legend b")
    assert after != before
    assert after[1] == percent(preview["explanation"]["neighbour_share"])
    look.click("#all-on")
    look.until(lambda: look.texts("#shares-legend b") == before)
    assert not look.all(".neighbour.off")


def test_queries_are_marked_gained_lost_and_kept_as_in_the_preview(look):
    look.open("new", text=AMBIGUOUS)
    look.one("#revealed").send_keys("fresh lemon", Keys.ENTER)
    look.until(lambda: "selected by the query “fresh lemon”" in look.texts("#neighbours .brought"))
    look.settle("new")
    preview = look.post("/v1/preview", {"text": AMBIGUOUS, "revealed": ["fresh lemon"]})
    assert {one["change"] for one in preview["reached"]} == {"gained", "lost", "kept"}
    look.click("#reach-more")
    for column, field in (("encoder", "encoder_rank"), ("meta", "meta_rank")):
        ranked = sorted(
            (one for one in preview["reached"] if one[field]),
            key=lambda one: (one["change"] == "kept", one[field]),
        )
        cells = [
            look.texts(f"#reached-{column} .{cell}") for cell in ("rank-number", "reached-query", "change")
        ]
        expected = [(str(one[field]), one["query"], one["change"]) for one in ranked]
        assert list(zip(*cells, strict=True)) == expected
    counts = [
        sum(one["change"] == change for one in preview["reached"]) for change in ("gained", "lost", "kept")
    ]
    assert look.texts("#tally b") == [f"+{counts[0]}", str(counts[1]), str(counts[2])]
    assert f"of {preview['pool']} known queries" in look.texts("#tally")[0]


DELAY_RESPONSE = """
const real = window.fetch;
window.fetch = (address, options) => {
  if (!options.body?.includes("old horse")) return real(address, options);
  return new Promise((resolve) => {
    window.held = { signal: options.signal, release: async (done) => {
      const answer = await real(address, { ...options, signal: null });
      const copy = answer.clone();
      resolve(answer);
      await copy.json();
      requestAnimationFrame(() => setTimeout(done, 0));
    } };
  });
};
"""


def test_a_late_response_to_an_older_text_is_ignored(look):
    look.open("new", text="grey cat")
    look.driver.execute_script(DELAY_RESPONSE)
    look.driver.execute_script("document.getElementById('item-text').select()")
    look.one("#item-text").send_keys("old horse")
    look.until(lambda: look.driver.execute_script("return window.held !== undefined"))
    look.write("young duck")
    shown = look.texts("#neighbours .id")
    assert shown[0].startswith("duck")
    assert look.driver.execute_script("return window.held.signal.aborted")
    look.driver.execute_async_script("window.held.release(arguments[0])")
    assert look.texts("#neighbours .id") == shown


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


def test_clicks_change_the_state_of_an_item_and_can_be_undone(look):
    look.add("life", "grey cat of the house")
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


def test_an_item_is_deleted_after_confirmation(look):
    look.add("a/b c?d#e", "small wolf with a name to be escaped")
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


def test_results_and_the_panel_have_the_fields_of_items_as_text(look):
    hurt = "<img src=x onerror='window.hurt = true'>"
    fields = {"price": 19.9, "in_stock": True, "brand": hurt, "sizes": ["41", "42"], "<b>weight</b>": 3}
    look.add("with fields", "grey cat with fields", ["fielded"], **fields)
    look.open("search", tag="fielded", item="with fields")
    brief = ["<b>weight</b> 3", "brand <img src=x onerror='window.hurt…", "in_stock true", "price 19.9"]
    assert look.texts(".result .fact") == [*brief, "and 1 more field"]
    look.until(lambda: look.all("#panel .facts"))
    named = dict(zip(look.texts("#panel .facts dt"), look.texts("#panel .facts dd"), strict=True))
    assert named == {name: "41, 42" if name == "sizes" else str(value) for name, value in fields.items()} | {
        "in_stock": "true"
    }
    assert look.driver.execute_script("return window.hurt") is None
    look.add("without", "grey cat without any", ["fielded"])
    look.open("search", tag="fielded", item="without")
    look.until(lambda: look.texts("#panel .panel-text") == ["grey cat without any"])
    assert not look.all("#panel .facts")
    assert len(look.texts(".result .fact")) == 5
