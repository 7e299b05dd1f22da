"""Tasks of lm-evaluation-harness: it defines and judges them, headsieve answers its requests."""
