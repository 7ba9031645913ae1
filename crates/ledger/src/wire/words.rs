//! The enumerations that the domain and the wire both have, word for word.

use super::field::WireEnum;
use super::{stored, v1};
use crate::affinity::Packing;
use crate::allocation::{AllocationPhase, MovePhase, StopCause, WorkerState};
use crate::card::{CardHealth, CardKind, Isolation, LinkKind, Precision};
use crate::idle::IdleStep;
use crate::job::{Ending, JobState};
use crate::node::{Eligibility, NodeState};
use crate::spec::{CheckpointMode, OnDisconnect};
use crate::virtual_card::{Access, Span};

macro_rules! words {
    ($domain:ident = $wire:path { $($word:ident),* $(,)? }) => {
        impl From<$domain> for $wire {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$word => Self::$word,)*
                }
            }
        }

        impl WireEnum for $domain {
            const KNOWN: &'static [&'static str] = &[$(stringify!($word)),*];

            fn to_wire(self) -> i32 {
                <$wire>::from(self) as i32
            }

            fn from_number(number: i32) -> Option<Self> {
                type Wire = $wire;
                match Wire::try_from(number).ok()? {
                    Wire::Unspecified => None,
                    $(Wire::$word => Some(Self::$word),)*
                }
            }
        }
    };
}

words!(CardKind = v1::CardKind { Gpu, Npu, Fpga, Cpu });
words!(Precision = v1::Precision { Fp32, Tf32, Fp16, Bf16, Fp8, Int8 });
words!(Span = v1::Span { Card, Node, Pool });
words!(Access = v1::Access { Worker, Device, Remote });
words!(Isolation = v1::Isolation { Shared, Soft, Hard });
words!(CheckpointMode = v1::CheckpointMode { Cooperative, Transparent, Requeue });
words!(Packing = v1::Packing { Stack, Spread });
words!(OnDisconnect = v1::OnDisconnect { Stop, Keep });
words!(CardHealth = v1::CardHealth { Healthy, Unhealthy });
words!(LinkKind = v1::LinkKind { Fabric, PcieSwitch, Numa, Node });
words!(WorkerState = v1::WorkerState { Held, Running, Draining, Lost, Stopped });
words!(AllocationPhase = v1::AllocationPhase { Waiting, Active, Reserved, Ending });
words!(MovePhase = v1::MovePhase { Reserved, Suspending, Transferring, Resuming });
words!(NodeState = v1::NodeState { Ready, Lost, Forgotten });
words!(IdleStep = v1::IdleStep { Noticed, Preemptible, Suspended, Released });
words!(Eligibility = v1::Eligibility { Eligible, Cordoned, Draining });
words!(Ending = stored::Ending { Completed, Failed, Cancelled, Timeout, Retry, Requeue });
words!(
    StopCause = v1::StopCause {
        Exited,
        StartFailed,
        NodeFault,
        Ordered,
        LeaseExpired,
        TimeLimit,
        NotGranted,
        OutOfMemory,
        Vanished,
        HostLost,
        NotRestored,
        PortTaken
    }
);
words!(
    JobState = v1::JobState {
        Pending,
        Starting,
        Running,
        Suspending,
        Suspended,
        Moving,
        Completing,
        Completed,
        Failed,
        Cancelled,
        Timeout,
    }
);
