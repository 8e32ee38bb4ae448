"""Scores to one page: tables, figures, pictures, and what was run. No torch in here: scores are enough to report."""
