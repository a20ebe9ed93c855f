"""Where requests go: addresses, endpoints, headers, keys."""

from base64 import b64encode

import pytest
from command_lines import config_of

from windtunnel.errors import ConfigurationError


def problem_of(line: str, **environ: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        config_of(line, **environ)
    text = f"{caught.value.message} {caught.value.advice}"
    assert "sekret" not in text
    return caught.value


@pytest.mark.parametrize(
    ("line", "base_url"),
    [
        ("", "http://127.0.0.1:8000"),
        ("--host localhost", "http://localhost:8000"),
        ("--host ::1 --port 81", "http://[::1]:81"),
        ("--host '[::1]' --port 81", "http://[::1]:81"),
        ("--host 10.0.0.1 --port 80", "http://10.0.0.1"),
        ("--base-url http://h:1", "http://h:1"),
        ("--base-url http://h:1/", "http://h:1"),
        ("--base-url https://h", "https://h"),
        ("--base-url https://h/gateway/a/", "https://h/gateway/a"),
        ("--base-url http://[fe80::1]:9/x", "http://[fe80::1]:9/x"),
        ("--base-url HTTP://H:1", "http://h:1"),
    ],
)
def test_the_address_is_taken_from_any_of_its_forms(line: str, base_url: str) -> None:
    assert config_of(line).target.base_url == base_url


@pytest.mark.parametrize(
    ("line", "endpoint"),
    [
        ("", "/v1/completions"),
        ("--backend vllm", "/v1/completions"),
        ("--backend openai-chat", "/v1/chat/completions"),
        ("--endpoint /x/completions", "/x/completions"),
        ("--endpoint v1/completions", "/v1/completions"),
        ("--backend openai-chat --endpoint '/d/chat/completions?api-version=1'", "/d/chat/completions?api-version=1"),
    ],
)
def test_the_endpoint_is_the_backend_s_unless_it_is_given(line: str, endpoint: str) -> None:
    assert config_of(line).target.endpoint == endpoint


def test_an_api_prefix_of_the_base_address_moves_to_the_endpoint() -> None:
    target = config_of("--base-url http://h:1/api/v1 --endpoint /completions").target
    assert (target.base_url, target.endpoint) == ("http://h:1/api", "/v1/completions")


@pytest.mark.parametrize("line", ["--base-url http://h:1/v1", "--base-url http://h:1/v1/ --endpoint /v1/completions"])
def test_a_doubled_api_prefix_is_refused_with_the_address_to_write(line: str) -> None:
    problem = problem_of(line)
    assert "/v1/v1/completions" in problem.message
    assert problem.advice.endswith("http://h:1")


@pytest.mark.parametrize(
    ("line", "where", "advice"),
    [
        ("--base-url h:1", "--base-url", "Did you mean --base-url http://h:1?"),
        ("--base-url ftp://h", "--base-url", "http://HOST:PORT"),
        ("--base-url http://", "--base-url", "http://HOST:PORT"),
        ("--base-url http://h:x", "--base-url", "http://HOST:PORT"),
        ("--base-url http://u:sekret@h:x", "--base-url", "http://HOST:PORT"),
        ("--base-url u:sekret@h", "--base-url", "http://HOST:PORT"),
        ("--base-url http://h?key=sekret", "--base-url", "--endpoint"),
        ("--base-url http://h --port 3", "--port", "--base-url"),
        ("--host http://h", "--host", "--base-url"),
        ("--host h:80", "--host", "--host h --port 80"),
        ("--host ''", "--host", "name"),
        ("--host 'a b'", "--host", "name"),
        ("--host u:sekret@h", "--host", "--base-url"),
        ("--endpoint http://h/v1/completions", "--endpoint", "--base-url"),
        ("--endpoint /v1/chat/completions", "--endpoint", "openai-chat"),
        ("--endpoint /v1/completion", "--endpoint", "/v1/completions"),
        ("--endpoint '/v1/a b/completions'", "--endpoint", "%-escapes"),
        ("--backend openai-chat --endpoint /v1/completions", "--endpoint", "--backend openai"),
        ("--proxy h:1", "--proxy", "Did you mean --proxy http://h:1?"),
        ("--proxy https://u:sekret@h:1", "--proxy", "http://"),
        ("--proxy socks5://u:sekret@h:1", "--proxy", "http://HOST:PORT"),
        ("--proxy http://h:1/path", "--proxy", "http://HOST:PORT"),
        ("--header sekret", "--header", "NAME=VALUE"),
        ("--header 'Authorization: Bearer sekret'", "--header", "NAME=VALUE"),
        ("--header 'A B=sekret'", "--header", "letters"),
        ("--header '=sekret'", "--header", "letters"),
        ("--header 'A=sekret\nB: x'", "--header", "one line"),
        ("--header A=sekret→", "--header", "Latin-1"),
        ("--header Content-Length=1", "--header", "Leave it out"),
    ],
)
def test_what_is_no_target_is_refused_without_showing_a_secret(line: str, where: str, advice: str) -> None:
    problem = problem_of(line)
    assert problem.where == where
    assert advice in problem.advice


def test_the_key_comes_from_the_environment_and_an_empty_one_is_none() -> None:
    assert config_of("", OPENAI_API_KEY="sk-1").target.api_key == "sk-1"
    assert config_of("", OPENAI_API_KEY="sk-1\n").target.api_key == "sk-1"
    assert config_of("", OPENAI_API_KEY="").target.api_key is None
    assert config_of("").target.api_key is None
    assert problem_of("", OPENAI_API_KEY="sekret\nx").where == "OPENAI_API_KEY"


def test_an_authorization_header_wins_over_the_key() -> None:
    target = config_of("--header authorization='Bearer mine' X-A=1", OPENAI_API_KEY="sk-1").target
    assert target.api_key is None
    assert target.headers == {"authorization": "Bearer mine", "X-A": "1"}


def test_user_and_password_of_the_address_become_basic_authorization_unless_there_is_a_key() -> None:
    line = "--base-url http://me:p%40ss@h:1/"
    target = config_of(line).target
    assert target.base_url == "http://h:1"
    assert target.headers == {"Authorization": f"Basic {b64encode(b'me:p@ss').decode()}"}
    assert config_of(line, OPENAI_API_KEY="sk-1").target.headers == {}
    assert config_of(f"{line} --header Authorization=x").target.headers == {"Authorization": "x"}
