//! Reports as one page of HTML that needs nothing else.

use crate::report::{CaseReport, FigureReport, Report, percents};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}\
table{border-collapse:collapse;margin:.5rem 0 1.5rem;width:100%}th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ccc}\
th:first-child,td:first-child{text-align:left}caption{text-align:left;color:#555}.missed{font-weight:bold;color:#a02020}\
pre{overflow:auto;padding:1rem;background:#f3f3f3}\
@media(prefers-color-scheme:dark){body{color:#e4e4e4;background:#161616}caption{color:#aaa}pre{background:#242424}th,td{border-color:#444}.missed{color:#ff8a8a}}";

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, character| {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
        safe
    })
}

/// A page for these reports.
pub fn html(reports: &[Report]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Forebay: validation</title><style>{STYLE}</style></head><body>\n"
    );
    reports.iter().enumerate().for_each(|(nth, report)| add_report(&mut html, nth, report));
    html.push_str("</body></html>\n");
    html
}

fn add_report(html: &mut String, number: usize, report: &Report) {
    let configuration = &report.configuration;
    let _ = write!(
        html,
        "<h1>{}: {}</h1>\n<p>{}</p>\n<h2>Verdict</h2>\n<ul>\n",
        escaped(&configuration.name),
        escaped(&configuration.title),
        escaped(&configuration.source)
    );
    for (nth, case) in report.cases.iter().enumerate() {
        let (name, verdict) = (escaped(&case.name), escaped(case.verdict()));
        let _ = writeln!(html, "<li><a href=\"#case{number}-{nth}\">{name}</a>: {verdict}</li>");
    }
    html.push_str("</ul>\n<h2>Results</h2>\n");
    for (nth, case) in report.cases.iter().enumerate() {
        let _ = writeln!(html, "<h3 id=\"case{number}-{nth}\">{}</h3>", escaped(&case.name));
        add_case(html, case);
    }
    html.push_str("<h2>Method</h2>\n<ul>\n");
    for line in report.conditions() {
        let _ = writeln!(html, "<li>{}</li>", escaped(&line));
    }
    html.push_str("</ul>\n<h2>Configuration</h2>\n");
    let _ = write!(html, "<pre>{}</pre>\n<h2>Again</h2>\n", escaped(&configuration.toml()));
    let _ = writeln!(
        html,
        "<p>Save the configuration as <code>configuration.toml</code>; the same figures come of <code>forebay validate run --model \
         configuration.toml --seed {}</code>.</p>",
        report.seed
    );
}

fn add_case(html: &mut String, case: &CaseReport) {
    let _ = write!(
        html,
        "<p>{}.",
        escaped(if case.published.is_empty() { "Nothing was published" } else { &case.published })
    );
    if let Some(why) = case.reason() {
        let _ = write!(html, " Ours differs: {}", escaped(why));
    }
    html.push_str("</p>\n");
    if !case.figures.is_empty() {
        html.push_str(
            "<table><tr><th>Figure</th><th>Published</th><th>Ours</th><th>Ours / published</th></tr>\n",
        );
    }
    for FigureReport { workload, measure, published, ours } in &case.figures {
        let (workload, ratio) = (escaped(workload), ours / published);
        let _ = writeln!(
            html,
            "<tr><td>{workload}, {measure}</td><td>{published}</td><td>{ours:.2}</td><td>{ratio:.2}</td></tr>"
        );
    }
    if !case.figures.is_empty() {
        html.push_str("</table>\n");
    }
    for (pool, busy) in case.busy.iter().enumerate() {
        let _ = writeln!(
            html,
            "<table><caption>Pool {pool}: disks busy {}</caption><tr><th>Workload</th><th>Needs /s</th><th>Got /s</th><th>Worst second \
             /s</th><th>MB/s</th><th>Mean ms</th><th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>Outstanding</th><th></th></tr>",
            percents(busy)
        );
        for client in case.clients.iter().filter(|client| client.pool == pool) {
            let class = if client.met == Some(false) { " class=\"missed\"" } else { "" };
            let _ = writeln!(
                html,
                "<tr{class}><td>{}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{:.1}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>\
                 <td>{:.2}</td><td>{:.2}</td><td>{}</td></tr>",
                escaped(&client.workload),
                client.needs_iops.map_or(String::new(), |needs| needs.to_string()),
                client.iops,
                client.least_iops,
                client.bytes_per_second / 1e6,
                client.mean_ms,
                client.p50_ms,
                client.p99_ms,
                client.p999_ms,
                client.outstanding,
                client.verdict()
            );
        }
        html.push_str("</table>\n");
    }
}
