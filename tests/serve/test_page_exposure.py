"""The dial of the search view: what exposing new items more or less costs, and the search that follows it."""

import pytest
from page_browser import PageBrowser
from running_service import running
from selenium.webdriver.common.keys import Keys

from metaxc.catalog import Catalog
from metaxc.emmett import Emmett

QUERY = "fresh bread"


def found(look, **body):
    """Ids that the service finds, asked directly."""
    hits = look.post("/v1/search", {"queries": [QUERY], "k": 50, **body})["answers"][0]["hits"]
    return [hit["id"] for hit in hits]


def prices(look):
    return look.texts("#exposure-prices b"), look.texts("#exposure-prices .difference")


def centre(look, selector):
    circle = look.one(selector)
    return float(circle.get_attribute("cx")), float(circle.get_attribute("cy"))


def test_the_dial_begins_at_the_models_own_exposure_with_its_figures(look):
    look.open("search", q=QUERY, k=50)
    assert look.one("#exposure-value").text == "−0.05"
    assert prices(look) == (["60.0 %", "80.0 %", "92.0 %"], ["±0.0"] * 3)
    assert look.texts("#results .id") == found(look) == found(look, exposure=-0.05)
    assert not look.one("#exposure-standard").is_displayed()
    assert centre(look, "#dial-curve .dial-here") == centre(look, "#dial-curve .dial-standard")
    assert len(look.all("#dial-curve .dial-measured")) == 4
    slider, mark = look.one("#exposure"), look.one("#exposure-mark")
    expected = slider.rect["x"] + 8 + (slider.rect["width"] - 16) / 3  # the second of four measured points
    assert mark.rect["x"] + 1 == pytest.approx(expected, abs=2)
    assert slider.get_property("value") == "33"


def test_the_keyboard_turns_the_dial_and_the_search_follows(look):
    look.open("search", q=QUERY, k=50)
    default = look.texts("#results .id")
    look.driver.execute_script("document.getElementById('exposure').focus()")
    look.press(Keys.END)
    look.until(lambda: "exposure=0.8" in look.driver.current_url)
    look.settle("search")
    assert prices(look) == (["74.0 %", "50.0 %", "70.0 %"], ["+14.0", "−30.0", "−22.0"])
    look.until(lambda: look.texts("#results .id") == found(look, exposure=0.8))
    assert look.texts("#results .id") != default
    assert "0.80: New items, R@10 74.0 %" in look.one("#exposure").get_attribute("aria-valuetext")
    look.press(Keys.HOME)
    look.until(lambda: look.texts("#results .id") == found(look, exposure=-0.19996))
    assert prices(look)[1] == ["−20.0", "+1.0", "−1.0"]
    look.click("#exposure-standard")
    look.until(lambda: look.texts("#results .id") == default)
    assert "exposure" not in look.driver.current_url
    assert look.focused.get_attribute("id") == "exposure"


def test_figures_between_the_measured_points_are_interpolated(look):
    look.open("search", q=QUERY, k=50, exposure=0.125)
    look.until(lambda: look.texts("#results .id") == found(look, exposure=0.125))
    assert prices(look) == (["65.0 %", "78.0 %", "91.0 %"], ["+5.0", "−2.0", "−1.0"])
    measured = [
        (float(one.get_attribute("cx")), float(one.get_attribute("cy"))) for one in look.all(".dial-measured")
    ]
    middle = [(one + other) / 2 for one, other in zip(measured[1], measured[2], strict=True)]
    assert centre(look, "#dial-curve .dial-here") == pytest.approx(middle, abs=0.2)
    right, up = zip(*measured, strict=True)
    assert list(right) == sorted(right)  # new items are found ever better along this curve
    assert up.index(max(up)) == 3  # overall accuracy falls to its end, and y grows downwards


def test_an_exposure_that_was_not_measured_has_no_figures(look):
    look.open("search", q=QUERY, k=50, exposure=5)
    look.until(lambda: look.texts("#results .id") == found(look, exposure=5))
    assert look.texts("#exposure-prices") == ["Measured from −0.20 to 0.80 only."]
    assert not look.all("#dial-curve .dial-here")
    assert look.one("#exposure-value").text == "5.00"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_dial_fits_its_sheet(look, width):
    look.resize(width, 844)
    look.open("search", q=QUERY)
    sheet = look.one("#find").rect
    for part in ("#exposure", "#dial-curve", "#exposure-prices"):
        box = look.one(part).rect
        assert sheet["x"] <= box["x"]
        assert box["x"] + box["width"] <= sheet["x"] + sheet["width"]


def test_a_model_without_a_curve_has_a_number_field(trained, shop, driver, tmp_path):
    model = Emmett.load(trained)
    model.about["exposure_curve"] = []
    with running(Catalog.create(tmp_path / "catalog", model)) as url:
        look = PageBrowser(driver, url)
        look.resize(1280)
        look.open("search", q=QUERY, k=50)
        field = look.until(
            lambda: look.one("#exposure-number") if look.one("#exposure-box").is_displayed() else None
        )
        assert field.is_displayed()
        assert not look.one("#exposure-dial").is_displayed()
        assert not look.one("#exposure-origin").is_displayed()
        assert field.get_property("value") == "-0.05"
        look.driver.execute_script("arguments[0].select()", field)
        field.send_keys("0.73", Keys.TAB)
        look.until(lambda: "exposure=0.73" in look.driver.current_url)
        look.until(lambda: look.texts("#results .id") == found(look, exposure=0.73))
        look.click("#exposure-standard")
        look.until(lambda: look.texts("#results .id") == found(look))
        assert look.console_errors() == []
