"""Embedded targets: servers of OpenAI's API that exist to be measured."""
