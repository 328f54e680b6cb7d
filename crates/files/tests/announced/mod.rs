//! Writes into a catalog what another host would announce. The tests choose the address of that host.

use std::sync::Arc;
use std::time::Duration;

use crossdock_catalog::Catalog;
use crossdock_files::{Announcement, Site, entry_key};
use crossdock_os::Deadline;

const SITE: &str = "site";
const WORKFLOW: &str = "flow";

/// Makes a site whose catalog is `catalog`.
pub fn site(catalog: impl Catalog + 'static) -> Site {
    Site { catalog: Arc::new(catalog), name: SITE.into(), workflow: WORKFLOW.into(), lease: Site::LEASE }
}

/// Writes an entry into the catalog: the host `node` has producers. The entry has no lease, so it stays.
pub fn announce(catalog: &dyn Catalog, directory: &str, node: &str, address: &str) {
    let announced = Announcement::producing(1, address);
    let key = entry_key(SITE, WORKFLOW, directory, node);
    catalog.put(&key, &announced.value(), None, Deadline::after(Duration::from_secs(60))).unwrap();
}
