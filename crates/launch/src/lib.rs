//! Workflow file, container engines, supervision.
