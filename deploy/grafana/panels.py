"""Panels as this project wants them, in types: no panel without a unit, a description and queries with names.

A panel says what it shows (`Panel`), a `board` puts rows of them together. What must hold for every panel is made
here or refused here: the data source is a variable, descriptions end with where to read on, and a panel that may be
without data says when.
"""

import dataclasses
import enum

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
IN = 'cluster="$cluster"'
MEMBERS = f'job="tessera-members", {IN}, member=~"$member"'
AGENTS = f'job="tessera-agents", {IN}, node=~"$node"'
LAST = common.ReduceDataOptions().calcs(["lastNotNull"])
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"


class Shape(enum.Enum):
    STAT = enum.auto()
    LINES = enum.auto()
    STACK = enum.auto()
    BARS = enum.auto()
    TABLE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    says: str
    """What is seen and what it means, for people."""
    unit: str
    queries: tuple[Query, ...]
    shape: Shape = Shape.LINES
    width: int = 8
    height: int = 8
    empty_while: str = ""
    """When no data is no fault, as the end of the sentence `No data while ...`."""
    runbook: str = ""
    """The alert that watches the same."""
    steps: tuple[tuple[float | None, str], ...] = ((None, GREEN),)
    most: float | None = None
    names: tuple[tuple[float, str], ...] = ()
    """Words to show in place of values."""
    hides: tuple[str, ...] = ()
    """Labels that a table does not show."""


def of_leader(metric, *by, where=""):
    """A number of the ledger as the leader counts it; what other members say may be late."""
    labels = f"{IN}, {where}" if where else IN
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} ({metric}{{{labels}}} and on (cluster, instance) tessera_raft_is_leader{{{IN}}} == 1)"


def per_second(counter, *by, where=IN):
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (rate({counter}{{{where}}}[$__rate_interval]))"


def quantile(share, histogram, *by, where=IN, window="$__rate_interval"):
    grouped = ", ".join((*by, "le"))
    return f"histogram_quantile({share}, sum by ({grouped}) (rate({histogram}_bucket{{{where}}}[{window}])))"


def quantiles(histogram, where=IN, window="$__rate_interval"):
    """The median and the slow end of a histogram."""
    return tuple(
        Query(quantile(share, histogram, where=where, window=window), f"p{share * 100:g}")
        for share in (0.5, 0.95, 0.99)
    )


def thresholds(steps):
    made = [models.Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def described(panel):
    words = panel.says
    if panel.empty_while:
        words += f" No data while {panel.empty_while}."
    return words


def empty_builder(shape):
    if shape is Shape.STAT:
        made = stat.Panel().graph_mode(shapes.BigValueGraphMode.AREA).color_mode(shapes.BigValueColorMode.BACKGROUND)
        return made.reduce_options(LAST)
    if shape is Shape.BARS:
        return bargauge.Panel().display_mode(shapes.BarGaugeDisplayMode.GRADIENT).reduce_options(LAST)
    if shape is Shape.TABLE:
        return table.Panel()
    made = timeseries.Panel().line_width(1).show_points(shapes.VisibilityMode.NEVER)
    legend = common.VizLegendOptions().show_legend(True).display_mode(shapes.LegendDisplayMode.TABLE)
    made = made.legend(legend.placement(shapes.LegendPlacement.BOTTOM).calcs(["lastNotNull", "max"]))
    made = made.tooltip(
        common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING)
    )
    if shape is Shape.STACK:
        made = made.fill_opacity(40).stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    return made


def built(panel):
    """A panel as Grafana's builder makes it."""
    if not (panel.says and panel.unit and panel.queries):
        raise ValueError(f"panel {panel.title!r} lacks a description, a unit or a query")
    made = empty_builder(panel.shape).title(panel.title).description(described(panel)).unit(panel.unit)
    made = made.datasource(SOURCE).span(panel.width).height(panel.height).thresholds(thresholds(panel.steps))
    if panel.shape is Shape.STAT and "{{" in panel.queries[0].legend:
        made = made.text_mode(shapes.BigValueTextMode.VALUE_AND_NAME)
    if panel.most is not None:
        made = made.max(panel.most)
    if panel.empty_while:
        made = made.no_value("–")
    if panel.names:
        options = {f"{value:g}": models.ValueMappingResult(text=text_) for value, text_ in panel.names}
        made = made.mappings([models.ValueMap(options=options)])
    if panel.runbook:
        url = f"${{docs}}/runbooks/{panel.runbook}.md"
        made = made.links(
            [
                dashboard.DashboardLink(f"Runbook {panel.runbook}")
                .type(models.DashboardLinkType.LINK)
                .url(url)
                .target_blank(True)
            ]
        )
    instant = panel.shape in (Shape.TABLE, Shape.BARS)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        asked = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter).datasource(SOURCE)
        if panel.shape is Shape.TABLE:
            asked = asked.format(PromQueryFormat.TABLE)
        made = made.with_target(asked.instant() if instant else asked.range())
    if panel.shape is Shape.TABLE:
        hidden = dict.fromkeys(("Time", "Value", "__name__", "job", "instance", "cluster", *panel.hides), True)
        shown = [query.legend for query in panel.queries]
        if len(panel.queries) > 1:
            made = made.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
            names = {f"Value #{letter}": name for letter, name in zip("ABCDEFGH", shown, strict=False)}
        else:
            hidden.pop("Value")
            names = {"Value": shown[0]}
        organize = {"excludeByName": hidden, "renameByName": names}
        made = made.with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))
    return made


def note(title, words, height=5):
    """Text for people; it asks nothing."""
    return text.Panel().title(title).description(title).mode(TextMode.MARKDOWN).content(words).span(24).height(height)


def choice(name, label, query, says, many=True):
    """A variable with the values of a label."""
    made = dashboard.QueryVariable(name).label(label).description(says).datasource(SOURCE).query(query)
    made = made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    return made.multi(True).include_all(True).all_value(".*") if many else made


MEMBER = choice("member", "Member", f"label_values(tessera_raft_term{{{IN}}}, member)", "Members of the control plane")
NODE = choice(
    "node", "Node", f"label_values(tessera_agent_connected{{{IN}}}, node)", "Nodes, by the names of their agents"
)
QUEUE = choice("queue", "Queue", f"label_values(tessera_quota_tflops{{{IN}}}, queue)", "Queues of the pool")


def board(uid, title, says, variables, rows, view):
    """A dashboard: rows of panels, each row with a title; `view` is the address in the console that shows the same."""
    made = dashboard.Dashboard(f"Tessera / {title}").uid(f"tessera-{uid}").description(says).tags(["tessera"])
    made = made.refresh("30s").time("now-3h", "now").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made = made.editable()
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    cluster = choice("cluster", "Pool", "label_values(tessera_raft_term, cluster)", "The pool to look at", many=False)
    made = made.with_variable(cluster)
    for variable in variables:
        made = made.with_variable(variable)
    documents = dashboard.TextBoxVariable("docs").label("Documents").description("Where docs/ can be read")
    made = made.with_variable(documents.default_value("https://tessera.example/docs"))
    others = (
        dashboard.DashboardLink("Tessera").type(models.DashboardLinkType.DASHBOARDS).tags(["tessera"]).as_dropdown(True)
    )
    made = made.link(others.include_vars(True).keep_time(True))
    operations = dashboard.DashboardLink("Operations").type(models.DashboardLinkType.LINK).url("${docs}/operations.md")
    made = made.link(operations.target_blank(True))
    console = dashboard.TextBoxVariable("console").label("Console").description("Where the console of a member is")
    made = made.with_variable(console.default_value("https://tessera.example/console"))
    shown = dashboard.DashboardLink("Console").type(models.DashboardLinkType.LINK).url(f"${{console}}/#{view}")
    made = made.link(shown.target_blank(True))
    for name, panels in rows:
        made = made.with_row(dashboard.Row(name))
        for panel in panels:
            made = made.with_panel(built(panel) if isinstance(panel, Panel) else panel)
    return numbered(made.build())


def numbered(made):
    """The same with the ids that Grafana would otherwise hand out itself, so that links to panels stay good."""
    for number, panel in enumerate(made.panels, 1):
        panel.id_val = number
    return made
