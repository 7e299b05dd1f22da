"""Sample efficiency: how much of the truth each method finds with how many evaluations."""
