mod content;
mod oracle;
#[cfg(test)]
mod oracle_test;
