// Everything that is done with a file from a stranger, for the fuzzers.

use kvarto::model::chat_template::{ChatTemplate, Message};
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::{Gguf, dequantize};
use kvarto::model::tokenizer::Tokenizer;

/// Opens a file and looks at all of it; whether it opened. Errors of the parts are answers like any other.
pub fn read(file: &[u8]) -> bool {
    let Ok(gguf) = Gguf::parse(file.to_vec()) else { return false };
    let _ = ModelConfig::from_gguf(&gguf);
    if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf)
        && let Ok(ids) = tokenizer.encode("ab <s> é", true)
    {
        let _ = tokenizer.decode(&ids);
    }
    if let Ok(template) = ChatTemplate::from_gguf(&gguf) {
        let _ = template.render(&[Message::new("user", "hi")], true);
    }
    for tensor in gguf.tensors() {
        if let Ok(bytes) = gguf.tensor_bytes(tensor) {
            let _ = dequantize(tensor, bytes);
        }
    }
    true
}
