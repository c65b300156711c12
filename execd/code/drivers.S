/* The drivers' texts as bytes of the agent (execd/code/embedded.c). */
    .section .rodata
    .globl kernel_driver_py
    .globl kernel_driver_py_end
    .globl kernel_driver_sh
    .globl kernel_driver_sh_end
kernel_driver_py:
    .incbin "execd/code/driver.py"
kernel_driver_py_end:
    .byte 0
kernel_driver_sh:
    .incbin "execd/code/driver.sh"
kernel_driver_sh_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
