"""Tokens by model: the field's labels, and never more of them than the bound."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from picker.admin.tokens import MAX_MODELS, MAX_NAME, TokenMetrics


def test_pairs_of_names_beyond_the_bound_are_told_together() -> None:
    registry = CollectorRegistry()
    tokens = TokenMetrics(registry)
    for number in range(MAX_MODELS + 7):
        tokens.used(f"m{number}", "t", given=1, made=2, cached=None)
    tokens.used("m0", "t", given=1, made=2, cached=0)
    page = generate_latest(registry).decode()
    assert page.count("picker_request_input_tokens_sum{") == MAX_MODELS + 1
    assert 'picker_request_input_tokens_sum{model_name="other",target_model_name="other"} 7.0' in page
    assert 'picker_request_input_tokens_sum{model_name="m0",target_model_name="t"} 2.0' in page
    assert page.count("picker_request_cached_tokens_sum{") == 1


def test_an_overlong_name_is_no_label() -> None:
    registry = CollectorRegistry()
    TokenMetrics(registry).used("x" * (MAX_NAME + 1), "t", given=1, made=2, cached=None)
    assert "xxx" not in generate_latest(registry).decode()
