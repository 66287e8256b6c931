"""Prices as they are now: AWS's public files by an opener of the test's, GetProducts by a client of the test's."""

import io
import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from raysm.client.service import Service
from raysm.errors import ServiceError
from raysm.grid.refreshing import listed_prices, published_prices
from raysm.request import AWS
from tests.client.costs.test_offer_file import TRAINING, offer, product


def opener(content, asked=None):
    def open_url(url):
        (asked if asked is not None else []).append(url)
        return io.BytesIO(content)

    return open_url


def test_a_regions_public_file_is_read_from_its_own_address():
    asked = []
    prices = published_prices("us-east-1", opener("".join(offer(TRAINING)).encode(), asked))
    assert prices.usd == {"ml.g5.xlarge": 1.408}
    assert prices.source == asked[0]
    assert asked[0].endswith("/offers/v1.0/aws/AmazonSageMaker/current/us-east-1/index.csv")


def away(url):
    raise urllib.error.URLError("no route to host")


@pytest.mark.parametrize(
    ("open_url", "message"),
    [
        (away, "cannot be read: no route to host; check the region"),
        (opener(b"\xff\xfe\n"), "cannot be read"),
        (opener(b"<html>"), "is not a list of prices"),
        (opener("".join(offer(TRAINING | {"Region Code": "eu-west-1"})).encode()), "has no prices of us-east-1"),
    ],
    ids=["away", "no text", "a page", "another region"],
)
def test_a_file_that_cannot_be_had_is_said(open_url, message):
    with pytest.raises(ServiceError, match=message):
        published_prices("us-east-1", open_url)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_list_that_breaks_off_is_not_taken_for_a_whole_one(is_chunked):
    content = "".join(offer(TRAINING)).encode()
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % (len(content) + 1000)
    chunk = b"%x\r\n" % (len(content) + 1000) if is_chunked else b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n" + chunk + content)

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        try:
            with pytest.raises(ServiceError, match="cannot be read: "):
                published_prices("us-east-1", lambda url: urllib.request.urlopen(address, timeout=60))
        finally:
            thread.join()


class Pricing:
    """GetProducts, a product a page."""

    def __init__(self, *products):
        self.products = products
        self.asked = []

    def get_products(self, **request):
        self.asked.append(request)
        page = int(request.get("NextToken", 0))
        more = {"NextToken": str(page + 1)} if page + 1 < len(self.products) else {}
        return {"PriceList": [json.dumps(self.products[page])], **more}


def service(client):
    return Service(AWS(role="arn:aws:iam::123456789012:role/r", region="us-east-1"), clients=lambda name: client)


def test_a_service_is_asked_for_all_pages_of_its_own_region():
    client = Pricing(product(), product(instanceName="ml.m5.large", usd="0.115"))
    prices = listed_prices(service(client))
    assert prices.usd == {"ml.g5.xlarge": 1.408, "ml.m5.large": 0.115}
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"} in client.asked[0]["Filters"]
    assert len(client.asked) == 2


def test_a_service_that_tells_of_another_region_alone_has_no_prices():
    with pytest.raises(ServiceError, match="has no prices of us-east-1"):
        listed_prices(service(Pricing(product(regionCode="eu-west-1"))))
