"""A small catalog, and programs that fail as its records say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.catalog.trees import store_of
from windtunnel.catalog.match.answer import Explanation
from windtunnel.catalog.match.look_up import explain
from windtunnel.catalog.store import Store

SHOP = {
    "shop/__init__.py": "",
    "shop/errors.py": '''
class OutOfStock(Exception):
    """There are not enough of an item."""

    def __init__(self, item, left):
        super().__init__(f"only {left} of {item} are left")


class Refused(Exception):
    """The bank refused a payment."""

    def __str__(self):
        return f"payment refused: {self.args[0]} (ask the bank)"
''',
    "shop/orders.py": '''
import json
import logging

from shop.errors import OutOfStock, Refused

logger = logging.getLogger(__name__)
STOCK = {"pen": 3}


def take(item, number):
    """Take items out of the stock."""
    left = STOCK[item]
    if number > left:
        raise OutOfStock(item, left)
    STOCK[item] = left - number


def order(item, number):
    if number <= 0:
        raise ValueError(f"cannot order {number} of {item}: the number must be positive")
    try:
        take(item, number)
    except KeyError as error:
        raise LookupError(f"there is no item named {item!r} in this shop") from error


def pay(cents):
    assert cents < 100_000
    if cents < 0:
        raise Refused("negative amount")
    if cents == 13:
        raise KeyError("the unlucky price can't be paid")
    return cents


def read(text):
    try:
        return json.loads(text)
    except ValueError:
        raise RuntimeError("the order is not readable")


def log_in(user):
    if not user:
        logger.error("login without a user from %s", "desk 4")
        raise PermissionError(1, "only known users may order")


class Cart:
    def add(self, item, number):
        if item in self.items():
            raise ValueError("the cart has this item already")
        if number > 99:
            raise ValueError("the cart is too small for that many items")

    def items(self):
        return ["pen"]


def sync(replica, state):
    if state != "ready":
        raise RuntimeError(f"replica {replica} is not ready: state={state}")
''',
}


def made(folder: Path, files: dict[str, str] = SHOP, project: str = "shop") -> Path:
    """Write a tree and index it; the store's path."""
    return store_of(folder, files, project)


def explained(path: Path, text: str, project: str | None = None) -> Explanation:
    with Store.open(path) as store:
        return explain(text, store, project=project)


def failing(folder: Path, code: str, project: str = "shop") -> str:
    """What a program prints on stderr that has the tree on its path."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(folder / project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr
