//! Plots as SVG within a page: lines, and marks that say what they are of without colour.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 40.0;
/// Points of a line, at most: what is finer than half a pixel is not to be seen.
const POINTS_MAX: usize = 400;

pub(crate) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Something wanted, not found.
    pub is_goal: bool,
}

/// Lines over one axis, beginning at 0 both ways.
pub(crate) fn plot(title: &str, x_name: &str, y_name: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = |of: fn(&(f64, f64)) -> f64| round_up(points().map(of).fold(0.0, f64::max));
    let (x_most, y_most) = (most(|point| point.0), most(|point| point.1));
    let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let (x, y) = (|value: f64| LEFT + value / x_most * wide, |value: f64| TOP + high - value / y_most * high);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{title}</title>\n<g class=\"axis\">"
    );
    for part in [0.0, 0.5, 1.0] {
        let (at_x, at_y) = (x(x_most * part), y(y_most * part));
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {at_y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT + wide,
            LEFT - 6.0,
            at_y + 4.0,
            y_most * part,
            TOP + high + 16.0,
            x_most * part
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text><text x=\"{LEFT}\" y=\"11\">{y_name}</text></g>",
        LEFT + wide / 2.0,
        HEIGHT - 6.0
    );
    for (nth, line) in lines.iter().enumerate() {
        let step = line.points.len().div_ceil(POINTS_MAX).max(1);
        let mut path = String::new();
        for point in line.points.iter().step_by(step) {
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if path.is_empty() { 'M' } else { 'L' },
                x(point.0),
                y(point.1)
            );
        }
        let class = if line.is_goal { "goal".to_string() } else { format!("line{}", nth % 4) };
        let label = TOP + 12.0 + 15.0 * nth as f64;
        let _ = writeln!(
            svg,
            "<g class=\"{class}\"><path d=\"{path}\"/><path d=\"M{:.1} {:.1}h20\"/><text x=\"{:.1}\" y=\"{label:.1}\">{}</text></g>",
            WIDTH - RIGHT + 8.0,
            label - 4.0,
            WIDTH - RIGHT + 33.0,
            line.name
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next of 1, 2, 5, 10, 20 …
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let rounded = [0.3, 1.0, 1.1, 7.0, 10.0, 11_887.0].map(round_up);
        assert_eq!(rounded, [0.5, 1.0, 2.0, 10.0, 10.0, 20_000.0]);
    }

    #[test]
    fn a_point_is_where_it_belongs() {
        let line = Line { name: "one".into(), points: vec![(0.0, 0.0), (10.0, 5.0)], is_goal: false };
        let svg = plot("t", "x", "y", &[line]);
        assert!(svg.contains("M70.0 180.0L490.0 16.0"), "{svg}");
        assert!(plot("t", "x", "y", &[]).contains("</svg>"));
    }
}
