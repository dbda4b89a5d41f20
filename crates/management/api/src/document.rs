//! The OpenAPI 3.1 document, made from the table of operations and the schemas of the types.
//!
//! It is committed as `docs/reference/openapi.json`. A test compares the two, so that a review shows every change of
//! the contract.

use crate::{Access, Method, Operation, Problem, ReplyBody};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{
    ArrayBuilder, ComponentsBuilder, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat,
    Type,
};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required};
use utoipa::{PartialSchema, ToSchema};

/// The document as text, with a final newline: the exact content of `docs/reference/openapi.json`.
pub fn document() -> String {
    let mut text = serde_json::to_string_pretty(&open_api()).expect("the document is plain data");
    text.push('\n');
    text
}

fn open_api() -> OpenApi {
    let mut paths = PathsBuilder::new();
    for operation in Operation::ALL {
        let method = match operation.method() {
            Method::Get => HttpMethod::Get,
            Method::Post => HttpMethod::Post,
            Method::Patch => HttpMethod::Patch,
            Method::Delete => HttpMethod::Delete,
        };
        // Operations on one path are merged by the builder.
        paths = paths.path(operation.path(), PathItem::new(method, describe(operation)));
    }
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Forebay")
                // The contract's version, not the product's: it changes only when a client could notice.
                .version("1")
                .description(Some(
                    "Sizes are bytes and times are milliseconds since 1970-01-01 UTC; the unit ends the \
                     field's name. Errors are RFC 9457 problem documents with a stable `code`. A name in a \
                     path is one percent-encoded segment: the volume demo/web is demo%2Fweb.",
                ))
                .build(),
        )
        .paths(paths)
        .components(Some(components()))
        .security(Some(
            ["token", "session"].map(|name| SecurityRequirement::new::<_, [String; 0], String>(name, [])),
        ))
        .build()
}

fn components() -> utoipa::openapi::Components {
    fn all<T: ToSchema + PartialSchema>(into: &mut Vec<(String, RefOr<Schema>)>) {
        into.push((T::name().into_owned(), T::schema()));
        T::schemas(into);
    }
    let mut schemas = Vec::new();
    all::<crate::Server>(&mut schemas);
    all::<crate::ServerSet>(&mut schemas);
    all::<crate::Pool>(&mut schemas);
    all::<crate::PoolCreate>(&mut schemas);
    all::<crate::PoolAdd>(&mut schemas);
    all::<crate::PoolSet>(&mut schemas);
    all::<crate::PoolScrub>(&mut schemas);
    all::<crate::DamagedRange>(&mut schemas);
    all::<crate::PoolTrimmed>(&mut schemas);
    all::<crate::PoolImport>(&mut schemas);
    all::<crate::DiskPaths>(&mut schemas);
    all::<crate::PoolsFound>(&mut schemas);
    all::<crate::Disk>(&mut schemas);
    all::<crate::MachineDisk>(&mut schemas);
    all::<crate::DiskReplace>(&mut schemas);
    all::<crate::DiskOnline>(&mut schemas);
    all::<crate::DiskLocate>(&mut schemas);
    all::<crate::Volume>(&mut schemas);
    all::<crate::VolumeCreate>(&mut schemas);
    all::<crate::VolumeSet>(&mut schemas);
    all::<crate::VolumeReclaimed>(&mut schemas);
    all::<crate::VolumeMove>(&mut schemas);
    all::<crate::MoveLeft>(&mut schemas);
    all::<crate::MoveKeep>(&mut schemas);
    all::<crate::Project>(&mut schemas);
    all::<crate::ProjectCreate>(&mut schemas);
    all::<crate::ProjectSet>(&mut schemas);
    all::<crate::TrashedVolume>(&mut schemas);
    all::<crate::TrashRestore>(&mut schemas);
    all::<crate::Snapshot>(&mut schemas);
    all::<crate::Snapshots>(&mut schemas);
    all::<crate::SnapshotCreate>(&mut schemas);
    all::<crate::SnapshotSet>(&mut schemas);
    all::<crate::SnapshotRollback>(&mut schemas);
    all::<crate::SnapshotClone>(&mut schemas);
    all::<crate::Bookmark>(&mut schemas);
    all::<crate::BookmarkCreate>(&mut schemas);
    all::<crate::BookmarkSet>(&mut schemas);
    all::<crate::Receive>(&mut schemas);
    all::<crate::Host>(&mut schemas);
    all::<crate::HostCreate>(&mut schemas);
    all::<crate::HostSet>(&mut schemas);
    all::<crate::HostGroup>(&mut schemas);
    all::<crate::HostGroupCreate>(&mut schemas);
    all::<crate::HostGroupSet>(&mut schemas);
    all::<crate::Mapping>(&mut schemas);
    all::<crate::MappingCreate>(&mut schemas);
    all::<crate::Level>(&mut schemas);
    all::<crate::LevelCreate>(&mut schemas);
    all::<crate::LevelSet>(&mut schemas);
    all::<crate::LedgerSecond>(&mut schemas);
    all::<crate::Session>(&mut schemas);
    all::<crate::Task>(&mut schemas);
    all::<crate::Event>(&mut schemas);
    all::<crate::Token>(&mut schemas);
    all::<crate::TokenCreate>(&mut schemas);
    all::<crate::TokenSet>(&mut schemas);
    all::<crate::TokenCreated>(&mut schemas);
    all::<crate::User>(&mut schemas);
    all::<crate::UserCreate>(&mut schemas);
    all::<crate::UserSet>(&mut schemas);
    all::<crate::Login>(&mut schemas);
    all::<crate::LoginCreate>(&mut schemas);
    all::<crate::Setup>(&mut schemas);
    all::<crate::SetupFinish>(&mut schemas);
    all::<crate::SetupLink>(&mut schemas);
    all::<crate::AuditEntry>(&mut schemas);
    all::<crate::Alert>(&mut schemas);
    all::<crate::Statistic>(&mut schemas);
    all::<crate::StatisticAnswer>(&mut schemas);
    all::<crate::StatisticSubscribe>(&mut schemas);
    all::<crate::StatisticSecond>(&mut schemas);
    all::<crate::Worksheet>(&mut schemas);
    all::<crate::WorksheetCreate>(&mut schemas);
    all::<crate::WorksheetSet>(&mut schemas);
    all::<crate::WorksheetExport>(&mut schemas);
    all::<crate::Threshold>(&mut schemas);
    all::<crate::ThresholdCreate>(&mut schemas);
    all::<crate::ThresholdSet>(&mut schemas);
    all::<crate::Channel>(&mut schemas);
    all::<crate::ChannelCreate>(&mut schemas);
    all::<crate::ChannelSet>(&mut schemas);
    all::<crate::ChannelTested>(&mut schemas);
    all::<crate::Report>(&mut schemas);
    all::<crate::ReportCreate>(&mut schemas);
    all::<crate::Plan>(&mut schemas);
    all::<Problem>(&mut schemas);
    ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(
            "token",
            SecurityScheme::Http(
                HttpBuilder::new()
                    .scheme(HttpAuthScheme::Bearer)
                    .description(Some(
                        "From `forebay token create NAME`. The Unix socket in the data directory needs none.",
                    ))
                    .build(),
            ),
        )
        .security_scheme(
            "session",
            SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::with_description(
                "forebay_session",
                "From `POST /api/v1/login`. Requests other than GET also need the header `X-CSRF-Token` with the `csrf` of that answer.",
            ))),
        )
        .build()
}

fn reference(name: &str) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

fn json(schema: RefOr<Schema>) -> utoipa::openapi::Content {
    ContentBuilder::new().schema(Some(schema)).build()
}

/// Bytes that no schema describes.
fn bytes() -> utoipa::openapi::Content {
    ContentBuilder::new().build()
}

fn text_header(description: &str) -> utoipa::openapi::Header {
    HeaderBuilder::new().schema(Object::with_type(Type::String)).description(Some(description)).build()
}

fn reply(operation: Operation) -> (&'static str, Response) {
    let mut response = ResponseBuilder::new();
    let status = match operation.reply() {
        ReplyBody::Object(name) => {
            let dry_run = operation.parameters().contains(&crate::Parameter::DryRun);
            let schema = match dry_run {
                true => RefOr::T(Schema::OneOf(
                    OneOfBuilder::new().item(reference(name)).item(reference("Plan")).build(),
                )),
                false => reference(name),
            };
            response = response.description(operation.summary()).content("application/json", json(schema));
            "200"
        }
        ReplyBody::Page(name) => {
            let page = ObjectBuilder::new()
                .property("items", ArrayBuilder::new().items(reference(name)))
                .required("items")
                .property("next_cursor", Object::with_type(Type::String));
            let page = RefOr::T(Schema::Object(page.build()));
            response = response.description("One page").content("application/json", json(page));
            "200"
        }
        ReplyBody::Created(name) => {
            response = response
                .description("Created")
                .header("Location", text_header("Path of the new object"))
                .content("application/json", json(reference(name)));
            "201"
        }
        ReplyBody::Task => {
            response = response
                .description("Accepted: a task does the work")
                .header("Location", text_header("Path of the task"))
                .content("application/json", json(reference("Task")));
            "202"
        }
        ReplyBody::Nothing => {
            response = response.description("Done");
            "204"
        }
        ReplyBody::Stream => {
            response = response.description("The stream").content("application/octet-stream", bytes());
            "200"
        }
        ReplyBody::Trace => {
            response = response.description("The trace").content("text/plain", bytes());
            "200"
        }
        ReplyBody::Events => {
            response = response.description("The stream").content("text/event-stream", bytes());
            "200"
        }
        ReplyBody::WebSocket => {
            response = response.description("A WebSocket (RFC 6455)");
            "101"
        }
        ReplyBody::Export => {
            response = response
                .description("The file")
                .content("application/json", json(reference("WorksheetExport")))
                .content("text/csv", bytes());
            "200"
        }
        ReplyBody::Report => {
            let any = RefOr::T(Schema::Object(Object::with_type(Type::Object)));
            response = response
                .description("The report")
                .content("text/html", bytes())
                .content("application/json", json(any));
            "200"
        }
        ReplyBody::Metrics => {
            response = response.description("The text").content("text/plain", bytes());
            "200"
        }
        ReplyBody::Document => {
            let any = RefOr::T(Schema::Object(Object::with_type(Type::Object)));
            response = response.description("The document").content("application/json", json(any));
            "200"
        }
    };
    if operation.is_versioned() && status != "204" {
        response = response.header("ETag", text_header("The version of the object's spec, for If-Match"));
    }
    (status, response.build())
}

fn describe(operation: Operation) -> utoipa::openapi::path::Operation {
    use crate::Parameter;
    let role = match operation.access() {
        _ if operation.is_open() => "No login needed.",
        Access::Viewer => "Role: viewer.",
        Access::Operator => "Role: operator.",
        Access::Admin => "Role: admin.",
    };
    let mut out = OperationBuilder::new()
        .operation_id(Some(format!("{operation:?}")))
        .summary(Some(operation.summary()))
        .description(Some(role));
    if operation.is_open() {
        out = out.security(SecurityRequirement::default());
    }
    let path = operation.path();
    if let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
        out = out.parameter(
            ParameterBuilder::new()
                .name(&path[from + 1..to])
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some("Name or UUID, percent-encoded as one segment"))
                .schema(Some(Object::with_type(Type::String))),
        );
    }
    for parameter in operation.parameters() {
        let schema = match parameter {
            Parameter::Cursor
            | Parameter::Filter
            | Parameter::Sort
            | Parameter::Pool
            | Parameter::Volume
            | Parameter::Host
            | Parameter::From
            | Parameter::Resume
            | Parameter::Expression
            | Parameter::Format
            | Parameter::Form => Object::with_type(Type::String),
            Parameter::DryRun
            | Parameter::Unmap
            | Parameter::WithSnapshots
            | Parameter::Purge
            | Parameter::Force
            | Parameter::DiscardChanges
            | Parameter::BestEffort => Object::with_type(Type::Boolean),
            Parameter::Limit
            | Parameter::After
            | Parameter::WaitSeconds
            | Parameter::Since
            | Parameter::Until
            | Parameter::Step
            | Parameter::Seconds
            | Parameter::Lines => {
                let (least, most) = parameter.range();
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
                    .minimum(least)
                    .maximum(most)
                    .build()
            }
        };
        out = out.parameter(
            ParameterBuilder::new()
                .name(parameter.name())
                .parameter_in(ParameterIn::Query)
                .required(if *parameter == Parameter::Expression { Required::True } else { Required::False })
                .description(Some(parameter.description()))
                .schema(Some(schema)),
        );
    }
    let mut headers = Vec::new();
    if operation.is_versioned() && operation.method() != Method::Get && operation.method() != Method::Post {
        headers.push(("If-Match", "Proceed only if the object's ETag is this one"));
    }
    if operation == Operation::EventStream {
        headers.push(("Last-Event-ID", "Number of the last event received; later events come first"));
    }
    if operation.is_repeatable() {
        headers
            .push(("Idempotency-Key", "A repeat with the same key and request gets the first answer again"));
    }
    for (name, description) in headers {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let schema = match name {
            "Idempotency-Key" => text.min_length(Some(1)).max_length(Some(crate::IDEMPOTENCY_KEY_BYTES_MAX)),
            _ => text,
        };
        out = out.parameter(
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some(description))
                .schema(Some(schema.build())),
        );
    }
    if let Some(input) = operation.input() {
        out = out.request_body(Some(
            RequestBodyBuilder::new()
                .content("application/json", json(reference(input)))
                .required(Some(Required::True))
                .build(),
        ));
    }
    if operation.takes_stream() {
        let body = RequestBodyBuilder::new().content("application/octet-stream", bytes());
        out = out.request_body(Some(body.required(Some(Required::True)).build()));
    }
    let (status, response) = reply(operation);
    out = out.response(status, response);
    if operation.parameters().contains(&Parameter::DryRun) && status != "200" {
        let plan = ResponseBuilder::new()
            .description("With dry_run: what would change")
            .content("application/json", json(reference("Plan")));
        out = out.response("200", plan.build());
    }
    let problem = ResponseBuilder::new()
        .description("A problem")
        .content("application/problem+json", json(reference("Problem")));
    out.response("default", problem.build()).build()
}
