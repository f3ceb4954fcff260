"""Tokens by model: the field's labels, and never more of them than the bound."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from picker.admin.models import MAX_NAME, MAX_PAIRS, ModelMetrics


def test_pairs_of_names_beyond_the_bound_are_told_together() -> None:
    registry = CollectorRegistry()
    tokens = ModelMetrics(registry)
    for number in range(MAX_PAIRS + 7):
        tokens.used(f"m{number}", "t", given=1, made=2, cached=None)
    tokens.used("m0", "t", given=1, made=2, cached=0)
    page = generate_latest(registry).decode()
    assert page.count("picker_request_input_tokens_sum{") == MAX_PAIRS + 1
    assert 'picker_request_input_tokens_sum{model_name="other",target_model_name="other"} 7.0' in page
    assert 'picker_request_input_tokens_sum{model_name="m0",target_model_name="t"} 2.0' in page
    assert page.count("picker_request_cached_tokens_sum{") == 1


def test_rewrites_are_bounded_apart() -> None:
    registry = CollectorRegistry()
    models = ModelMetrics(registry)
    models.used("m", "t", given=1, made=2, cached=None)
    for number in range(MAX_PAIRS + 3):
        models.rewrote("rule", f"t{number}")
    page = generate_latest(registry).decode()
    assert page.count("picker_model_rewrite_decisions_total{") == MAX_PAIRS + 1
    assert 'picker_model_rewrite_decisions_total{rule="other",target_model_name="other"} 3.0' in page


def test_an_overlong_name_is_no_label() -> None:
    registry = CollectorRegistry()
    ModelMetrics(registry).used("x" * (MAX_NAME + 1), "t", given=1, made=2, cached=None)
    assert "xxx" not in generate_latest(registry).decode()
