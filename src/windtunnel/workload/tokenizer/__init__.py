"""Tokenizers: who turns text into token ids and counts them. Heavy libraries are imported by what needs them."""
