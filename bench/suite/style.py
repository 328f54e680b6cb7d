"""The style sheet of the page, for light and dark. Nothing is wider than the page: on a narrow page each row of a table becomes a
block."""
import re

CSS = """
:root { color-scheme: light dark;
  --back: #fbfbf9; --text: #1d2023; --soft: #5c646c; --line: #d9dcd8; --box: #ffffff; --good: #1a7f4b; --bad: #b3391d;
  --c0: #0b6bcb; --c1: #c0571a; --c2: #2f8f5b; --c3: #8a4fbf; --c4: #b8285f; --c5: #7a6a00; --c6: #16808c; --c7: #6b6f76; --c8: #d0883f; --c9: #4c5fd0; --c10: #3d3d3d; --c11: #9c7b5b;
  --c12: #5f9e0a; --c13: #d15bb0; --c14: #005f73; --c15: #8d3b2b; }
@media (prefers-color-scheme: dark) { :root {
  --back: #15181b; --text: #e6e8e6; --soft: #9aa3ab; --line: #333a40; --box: #1c2024; --good: #58c98b; --bad: #f08a6c;
  --c0: #5ba8f5; --c1: #f0995c; --c2: #63cf95; --c3: #c39af0; --c4: #f07aa6; --c5: #d9c64a; --c6: #5fd0dc; --c7: #a5abb3; --c8: #f0bd80; --c9: #98a5ff; --c10: #d8d8d8; --c11: #cfae8e;
  --c12: #a6e05c; --c13: #f5a3dc; --c14: #7fd3e6; --c15: #e39a8a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; } h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p, .about { color: var(--soft); margin: .3rem 0; } .about { font-size: .85rem; }
.summary { font-size: 1.05rem; padding-left: 1.2rem; max-width: 48rem; } .summary li { margin: .3rem 0; }
table { border-collapse: collapse; table-layout: fixed; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; overflow-wrap: normal; } th:first-child, td.case, td.words, th.words { text-align: left; }
th:nth-child(2) { width: 13%; } th:nth-child(3) { width: 16%; } th:nth-child(4) { width: 8%; } th:nth-child(5) { width: 7%; } th:nth-child(6) { width: 12%; } th.words { width: 60%; } .more { color: var(--soft); font-size: .82rem; }
@media (max-width: 44rem) {
  table, tbody, tr, td { display: block; width: auto; } tr:has(th) { display: none; } tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  td, td.case, td.words { border: 0; padding: .05rem 0; width: auto; text-align: right; } td.case { text-align: left; font-weight: 600; } td.case .more { font-weight: 400; }
  td[data-name] { display: flex; justify-content: space-between; gap: 1rem; } td[data-name]::before { content: attr(data-name); flex: none; color: var(--soft); font-weight: 400; }
  td.none[data-name] { display: none; }
}
@media (max-width: 30rem) { figure svg text { font-size: 14.5px; } }
.met { color: var(--good); font-weight: 600; } .missed { color: var(--bad); font-weight: 600; } .close { font-weight: 600; }
figure { margin: .5rem 0 1rem; background: var(--box); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem; }
figure svg { display: block; width: 100%; max-width: 42rem; height: auto; margin: 0 auto; overflow: visible; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 0 1rem; } figcaption { font-size: .9rem; font-weight: 600; }
svg text { fill: var(--text); font-family: system-ui, sans-serif; } svg .soft { fill: var(--soft); }
.key { display: flex; flex-wrap: wrap; gap: .2rem .9rem; font-size: .82rem; margin-top: .3rem; } .key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; margin-right: .3rem; vertical-align: -1px; }
"""


def light():
    """The page's colours by name, on a light background."""
    return _colours(CSS.split("@media")[0])


def dark():
    """The page's colours by name, on a dark background."""
    return _colours(CSS.split("@media")[1])


def _colours(text):
    return dict(re.findall(r"--(\w+): (#\w+);", text))
