"""Who may ask: hosts, origins, tokens; and what every answer says to the browser."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from protopyramid.reader.settings import Refusal
from protopyramid.reader.shield import WRONG_TOKENS, Access

from .conftest import ADDRESS, MakeClient

TOKEN = "a-long-token"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000"])
def test_names_of_this_host_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:8000", "127.0.0.1.evil.example:8000", "127.0.0.1:9", "10.0.0.1:8000", "[", ""],
)
def test_other_names_are_not(client: TestClient, host: str) -> None:
    answer = client.get("/healthz", headers={"Host": host})
    assert answer.status_code == 421
    assert set(answer.json()) == {"error"}


def test_beyond_this_machine_addresses_are_answered_but_foreign_names_are_not(
    make_client: MakeClient,
) -> None:
    client = make_client(host="0.0.0.0", token=TOKEN)
    statuses = {
        host: client.get("/healthz", headers={"Host": host}).status_code
        for host in ("192.168.1.5:8000", "evil.example:8000")
    }
    assert statuses == {"192.168.1.5:8000": 200, "evil.example:8000": 421}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9000"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_cannot_send(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/api/explain", headers=headers).status_code == 403


def test_our_own_page_can_send(client: TestClient) -> None:
    headers = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/explain", headers=headers).status_code == 400  # no file, but read


def test_without_the_token_nothing_is_answered(make_client: MakeClient) -> None:
    client = make_client(token=TOKEN)
    assert client.get("/healthz").status_code == 200
    for path in ("/api/runs", "/api/openapi.json", "/api/images/x"):
        assert client.get(path).status_code == 401
    page = client.get("/")
    assert page.status_code == 401 and "password" in page.text
    for needed in ("login.css", "login.js", "words.js"):  # by the page that asks for the token
        assert client.get(f"/page/{needed}").status_code == 200
    assert client.get("/page/main.js").status_code == 401
    wrong = {"Authorization": "Bearer another"}
    assert client.get("/api/runs", headers=wrong).status_code == 401
    forged = {"Cookie": "protopyramid-8000=forged"}
    assert client.get("/api/runs", headers=forged).status_code == 401


def test_with_the_token_a_program_is_answered(make_client: MakeClient) -> None:
    client = make_client(token=TOKEN)
    answer = client.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("way", ["link", "form"])
def test_a_browser_gets_a_cookie_that_scripts_cannot_read(
    make_client: MakeClient, way: str
) -> None:
    client = make_client(token=TOKEN)
    if way == "link":
        answer = client.get(f"/?token={TOKEN}")
    else:
        answer = client.post("/login", data={"token": TOKEN})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert client.get("/api/runs").status_code == 200


def test_after_a_few_wrong_tokens_even_the_right_one_waits(make_client: MakeClient) -> None:
    client = make_client(token=TOKEN)
    for _ in range(WRONG_TOKENS):
        assert client.post("/login", data={"token": "guess"}).status_code == 401
    answer = client.post("/login", data={"token": TOKEN})
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0


def test_wrong_tokens_of_one_address_do_not_shut_out_another() -> None:
    access = Access("0.0.0.0", 8000, TOKEN)
    for _ in range(WRONG_TOKENS):
        assert not access.admits("guess", "10.0.0.1")
    with pytest.raises(Refusal):
        access.admits(TOKEN, "10.0.0.1")
    assert access.admits(TOKEN, "10.0.0.2")


def test_every_answer_has_a_strict_policy(client: TestClient) -> None:
    for path in ("/", "/healthz", "/api/runs", "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/api/runs").headers["cache-control"] == "no-store"
