"""The table, as Markdown."""
from plan import FOOTPRINT, REFERENCE


def figure(value):
    if isinstance(value, int):
        return f"{value:,}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio):
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def cell(result):
    if "absent" in result:
        return result["absent"]
    if "error" in result:
        return "failed"
    if result["unit"] == FOOTPRINT:
        parts = [f"{result['value']:.3f}"] if result["value"] is not None else []
        if "fixed" in result:
            parts.append(f"fixed {result['fixed']:.2f}" if result["fixed"]
                         else "fixed: 4.0 is too small")
        return ", ".join(parts)
    text = figure(result["value"])
    if result.get("interpreter"):
        text += f", interpreter {figure(result['interpreter'])}"
    if result.get("ratio") and result["allocator"] != REFERENCE:
        text += f" ({times(result['ratio'])})"
    return text


def markdown(report):
    names = report["allocators"]
    lines = ["| case | unit | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for case in report["cases"]:
        cells = {r["allocator"]: cell(r) for r in report["results"]
                 if (r["case"], r["unit"]) == (case["case"], case["unit"])}
        lines.append(f"| {case['case']} | {case['unit']} | "
                     + " | ".join(cells[name] for name in names) + " |")
    return "\n".join([*lines, "", *notes(report["results"])]) + "\n"


def notes(results):
    """Reasons that do not fit into the cells, each once."""
    cases = {}
    for result in results:
        reason = result.get("error") or result.get("detail")
        if reason:
            named = cases.setdefault((result["allocator"], reason), {})
            named.update({result["case"]: None} if "error" in result else {})
    return [f"- {', '.join([allocator, *named])}: {reason}"
            for (allocator, reason), named in cases.items()]
