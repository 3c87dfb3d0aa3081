"""What flowfn costs, beside LangGraph and the bare limit: `python -m benchmarks`."""
