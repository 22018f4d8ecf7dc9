"""Ranking, rating and attribute-inference metrics, and the statistics to compare them: functions on arrays."""

from fedrec_unlearn.metrics.attribute import (
    accuracy,
    auc,
    balanced_accuracy,
    chance_level,
    macro_f1,
    majority_share,
)
from fedrec_unlearn.metrics.csr import ItemLists
from fedrec_unlearn.metrics.evaluate import evaluate_full, evaluate_sampled
from fedrec_unlearn.metrics.names import (
    FULL,
    RANKING_METRICS,
    check_metrics,
    check_sampled_topk,
    check_topk,
    metric_key,
    sampled_protocol,
)
from fedrec_unlearn.metrics.popularity import popularity_pair_scorer, popularity_scorer, popularity_scores
from fedrec_unlearn.metrics.ranking import (
    EmptyMetricWarning,
    average_precision,
    hr,
    mrr,
    ndcg,
    per_user,
    precision,
    ranking_metrics,
    recall,
)
from fedrec_unlearn.metrics.rating import mae, rmse
from fedrec_unlearn.metrics.sampled import (
    SampledRanks,
    ScorePairs,
    rank_sampled,
    sample_negatives,
    sampled_metrics,
    sampled_per_pair,
)
from fedrec_unlearn.metrics.statistics import MeanInterval, PairedDifference, mean_interval, paired_difference
from fedrec_unlearn.metrics.topk import NO_ITEM, RankedHits, ScoreChunk, rank_full, top_items

__all__ = [
    "FULL",
    "NO_ITEM",
    "RANKING_METRICS",
    "EmptyMetricWarning",
    "ItemLists",
    "MeanInterval",
    "PairedDifference",
    "RankedHits",
    "SampledRanks",
    "ScoreChunk",
    "ScorePairs",
    "accuracy",
    "auc",
    "average_precision",
    "balanced_accuracy",
    "chance_level",
    "check_metrics",
    "check_sampled_topk",
    "check_topk",
    "evaluate_full",
    "evaluate_sampled",
    "hr",
    "macro_f1",
    "mae",
    "majority_share",
    "mean_interval",
    "metric_key",
    "mrr",
    "ndcg",
    "paired_difference",
    "per_user",
    "popularity_pair_scorer",
    "popularity_scorer",
    "popularity_scores",
    "precision",
    "rank_full",
    "rank_sampled",
    "ranking_metrics",
    "recall",
    "rmse",
    "sample_negatives",
    "sampled_metrics",
    "sampled_per_pair",
    "sampled_protocol",
    "top_items",
]
