//! What is wrong now.

use crate::Shared;
use crate::request::{Answered, Ask, ok};
use axum::extract::State;
use forebay_api::Alert;
use std::sync::Arc;

pub async fn list(State(_shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    ok(&ask.page(Vec::<Alert>::new(), |alert| alert.id.clone()))
}
