/* The agent's program file as bytes of the gateway (gateway/agent_blob.h). */
    .section .rodata
    .balign 16
    .globl agent_blob
    .globl agent_blob_end
agent_blob:
    .incbin AGENT_FILE
agent_blob_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
