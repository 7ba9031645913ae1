//! Accelerators, and whether their drivers are there.

use crate::doctor::facts::{Accelerator, Facts};
use crate::doctor::finding::{Check, Finding};

const CARDS: Check = Check("devices.cards", "what the agent offers to the pool");
const DRIVER: Check =
    Check("devices.driver", "programs reach an accelerator through a driver of the kernel and a library");

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(agent) = &facts.agent {
        found.push(match &agent.cards {
            Ok(cards) => CARDS.ok(cards.clone()),
            Err(error) => {
                CARDS.failure(error.clone(), "mend the inventory, or choose other cards (docs/configuration.md)")
            }
        });
    }
    match &facts.devices {
        Ok(devices) if devices.accelerators.is_empty() => {
            found.push(DRIVER.not_applicable("no accelerator is on the PCI bus"));
        }
        Ok(devices) => found.extend(devices.accelerators.iter().map(judge_driver)),
        Err(error) => found.push(DRIVER.not_applicable(format!("the PCI bus cannot be read: {error}"))),
    }
    found
}

fn judge_driver(accelerator: &Accelerator) -> Finding {
    let Accelerator { address, vendor, driver, library } = accelerator;
    let finding = match (driver, library) {
        (None, _) => DRIVER.warning("no driver of the kernel has it", "install its maker's driver and load it"),
        (Some(driver), None) => {
            DRIVER.warning(format!("{driver}, without a library for programs"), "install its maker's user-space driver")
        }
        (Some(driver), Some(library)) => DRIVER.ok(format!("{driver}, {library}")),
    };
    finding.of(format!("{vendor} at {address}"))
}
