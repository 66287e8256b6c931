"""AWS's lists of prices: files of tens of MB line by line, GetProducts, and what is no such list."""

import csv
import io
import json
import subprocess
import sys
import textwrap

import pytest

from raysm.client.costs.offer_file import prices_of_offer, prices_of_products
from raysm.errors import ServiceError

# As the files begin: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
METADATA = (
    '"FormatVersion","v1.0"\n"Disclaimer","This pricing list is for informational purposes only."\n'
    '"Publication Date","2026-09-21T17:25:04Z"\n"Version","20260921172504"\n"OfferCode","AmazonSageMaker"\n'
)
COLUMNS = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "Unit", "PricePerUnit",
    "Currency", "Product Family", "Component", "Instance Name", "usageType", "Region Code",
)  # fmt: skip
TRAINING = {
    "SKU": "A1", "TermType": "OnDemand", "PriceDescription": "$1.408 per hour, in Virginia", "Unit": "Hrs",
    "PricePerUnit": "1.4080000000", "Currency": "USD", "Product Family": "ML Instance", "Component": "Training",
    "Instance Name": "ml.g5.xlarge", "usageType": "USE1-Train:ml.g5.xlarge", "Region Code": "us-east-1",
}  # fmt: skip


def offer(*rows, metadata=METADATA, columns=COLUMNS):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name, "") for name in columns] for row in rows)
    return (metadata + text.getvalue()).splitlines(keepends=True)


def prices(*rows, **more):
    return prices_of_offer(offer(*rows, **more), "the file")


def test_hours_of_training_on_demand_are_prices_with_version_and_date():
    (one,) = prices(TRAINING)
    assert dict(one.usd) == {"ml.g5.xlarge": 1.408}
    assert (one.region, one.as_of, one.version, one.source) == ("us-east-1", "2026-09-21", "20260921172504", "the file")


@pytest.mark.parametrize(
    "changes",
    [
        {"Component": "Hosting"},
        {"Component": "SpotTraining"},
        {"TermType": "Reserved"},
        {"Currency": "CNY"},
        {"Unit": "Quantity"},
        {"PricePerUnit": "0.0000000000"},
        {"PricePerUnit": "free"},
        {"Instance Name": "NA"},
        {"Region Code": ""},
    ],
    ids=lambda changes: "{}={}".format(*next(iter(changes.items()))),
)
def test_what_is_no_price_of_training_in_dollars_is_passed_over(changes):
    (one,) = prices(TRAINING, TRAINING | {"Instance Name": "ml.m5.large", "PricePerUnit": "9"} | changes)
    assert dict(one.usd) == {"ml.g5.xlarge": 1.408}


def test_a_volume_and_every_region_of_a_file_have_their_own():
    volume = TRAINING | {"Unit": "GB-Mo", "PricePerUnit": "0.14", "usageType": "USE1-Train:VolumeUsage.gp2"}
    elsewhere = TRAINING | {"Region Code": "eu-west-1", "PricePerUnit": "1.57"}
    ireland, virginia = prices(TRAINING, volume, elsewhere)
    assert (ireland.region, ireland.usd["ml.g5.xlarge"], ireland.volume_gb_month) == ("eu-west-1", 1.57, None)
    assert (virginia.region, virginia.volume_gb_month) == ("us-east-1", 0.14)


def test_of_two_prices_of_a_type_the_dearer_one_counts():
    (one,) = prices(TRAINING, TRAINING | {"PricePerUnit": "1.2"})
    assert one.usd["ml.g5.xlarge"] == 1.408


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["<html>\n"] * 30, "no column 'termtype'; the format may have changed"),
        (offer(TRAINING, columns=tuple(name for name in COLUMNS if name != "Unit")), "no column 'unit'"),
        (offer(TRAINING | {"Component": "Hosting"}), "no price of training on demand"),
        (offer(TRAINING, metadata=""), "does not say when it was published"),
        ([], "no column 'termtype'"),
    ],
    ids=["a page", "a column less", "nothing of training", "no date", "empty"],
)
def test_what_is_no_list_of_prices_is_refused(lines, message):
    with pytest.raises(ServiceError, match=message):
        prices_of_offer(lines, "the file")


def product(unit="Hrs", usd="1.408", **attributes):
    attributes = {
        "instanceName": "ml.g5.xlarge", "regionCode": "us-east-1", "platoinstancetype": "Training",
        "usagetype": "USE1-Train:ml.g5.xlarge", **attributes,
    }  # fmt: skip
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}}
    return {
        "product": {"sku": "A", "productFamily": "ML Instance", "attributes": attributes},
        "terms": terms,
        "version": "20260921172504",
        "publicationDate": "2026-09-21T17:25:04Z",
    }


def test_get_products_says_the_same_as_the_file():
    (one,) = prices_of_products([json.dumps(product()), json.dumps(product(usd="0"))], "GetProducts")
    (same,) = prices(TRAINING)
    assert (one.usd, one.as_of, one.version) == (same.usd, same.as_of, same.version)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"product": 3}'])
def test_an_answer_that_is_no_product_is_refused(text):
    with pytest.raises(ServiceError, match="what is not a product"):
        prices_of_products([text], "GetProducts")


FORTY_MB = """
    import sys, time
    from pathlib import Path
    from raysm.client.costs.offer_file import prices_of_offer
    begin = time.process_time()
    with open(sys.argv[1], encoding="utf-8", newline="") as file:
        (one,) = prices_of_offer(file, "the file")
    used = time.process_time() - begin
    status = Path("/proc/self/status").read_text().splitlines()
    print(len(one.usd), used, next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the most memory of a process is read from /proc")
def test_a_file_of_40_mb_takes_less_than_ten_seconds_and_150_mb(tmp_path):
    path = tmp_path / "index.csv"
    reserved = "".join(offer(*[TRAINING | {"TermType": "Reserved"}] * 5, metadata="")[1:])
    hosted = "".join(offer(*[TRAINING | {"Component": "Hosting"}] * 5, metadata="")[1:])
    with path.open("w") as file:
        file.writelines(offer(TRAINING))
        while file.tell() < 40e6:
            file.write((reserved + hosted) * 1000)
        file.writelines(offer(TRAINING | {"Instance Name": "ml.m5.large"}, metadata="")[1:])
    command = [sys.executable, "-c", textwrap.dedent(FORTY_MB), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    number, seconds, megabytes = map(float, done.stdout.split())
    assert number == 2
    assert seconds < 10
    assert megabytes < 150
