"""LangGraph's import paths, for programs that come from there: names handed on, nothing else."""
