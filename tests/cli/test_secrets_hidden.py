"""Keys, header values and passwords don't show in what is printed or saved."""

from base64 import b64encode

import pytest
from command_lines import config_of, windtunnel

from windtunnel.cli.secrets import known_secrets, scrub
from windtunnel.loadgen.redact import redact_config

SECRET_LINES = [
    ["--base-url", "http://me:sekret-password@h:x"],
    ["--base-url", "me:sekret-password@h"],
    ["--base-url=http://me:sekret-password@h/v1"],
    ["--proxy", "ftp://me:sekret-password@h"],
    ["--header", "Authorization: Bearer sekret-token"],
    ["--header", "A=1", "Bearer sekret-token"],
    ["--header", "B C=sekret-token"],
    ["--header=Authorization=sekret-token", "X=sekret-other"],
    ["--head", "Host=sekret-token"],
    ["--header", "A=sekret-token", "--nonsense=sekret-token"],
    ["--api-key", "sekret-key"],
    ["--api_key=sekret-key"],
]


@pytest.mark.parametrize("arguments", SECRET_LINES, ids=" ".join)
@pytest.mark.parametrize("debug", ["", "1"])
def test_no_error_shows_a_secret(arguments: list[str], debug: str) -> None:
    environ = {"OPENAI_API_KEY": "sekret-key", "WINDTUNNEL_DEBUG": debug}
    done = windtunnel("bench", "serve", *arguments, environ=environ)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "sekret" not in done.stdout + done.stderr


def test_secrets_are_found_wherever_the_command_line_has_them() -> None:
    arguments = [
        *("--header", "Authorization=Bearer token-1", "X-K=value-2", "--seed", "12345"),
        *("--header=Y=value-3", "--base-url", "https://me:word-4@h", "--proxy=http://word-5@p"),
    ]
    found = known_secrets(arguments, {"OPENAI_API_KEY": "key-6"})
    basic = b64encode(b"me:word-4").decode()
    assert found >= {"Bearer token-1", "token-1", "value-2", "value-3", "me:word-4", "word-4", basic, "word-5", "key-6"}
    assert "12345" not in found


def test_scrubbing_hides_longer_secrets_before_their_parts() -> None:
    assert scrub("a Bearer token-1 b token-1", {"token-1", "Bearer token-1"}) == "a [hidden] b [hidden]"
    assert scrub("nothing", set()) == "nothing"


def test_the_saved_configuration_names_headers_and_shows_no_secret() -> None:
    config = config_of(
        "--base-url http://me:sekret-password@h:1 --header X-Key=sekret-token --proxy http://me:sekret-proxy@p:1",
    )
    keyed = config_of("--header X-Key=sekret-token", OPENAI_API_KEY="sekret-key")
    text = repr([redact_config(config), redact_config(keyed)])
    assert "sekret" not in text
    assert b64encode(b"me:sekret-password").decode() not in text
    assert "X-Key" in text and "http://p:1" in text and "http://h:1" in text
