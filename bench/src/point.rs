use serde::Serialize;

use crate::Record;

/// A record with its position in a plot.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The record with the figure of this point.
    #[serde(flatten)]
    pub record: Record,
    /// The name of the plot, for example `tcasm-2`; `None` for a record that is in no plot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<&'static str>,
    /// The name of the panel, if the plot has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panel: Option<String>,
    /// The position on the horizontal axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// The name of the line in the plot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
}

impl Point {
    /// Puts a measurement into a plot that has one panel.
    #[must_use]
    pub fn new(record: Record, figure: &'static str, x: usize, series: impl Into<String>) -> Self {
        Self { record, figure: Some(figure), panel: None, x: Some(x as f64), series: Some(series.into()) }
    }

    /// Puts the point into a panel of the plot.
    #[must_use]
    pub fn in_panel(self, panel: impl Into<String>) -> Self {
        Self { panel: Some(panel.into()), ..self }
    }
}

impl From<Record> for Point {
    fn from(record: Record) -> Self {
        Self { record, figure: None, panel: None, x: None, series: None }
    }
}
