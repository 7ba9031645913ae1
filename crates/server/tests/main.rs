//! Members in one process: three of them with agents that speak the session protocol, and what their services answer.

mod pool;
mod services;
