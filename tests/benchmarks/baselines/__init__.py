"""Small honest baselines that engines are measured against; not part of the product."""
