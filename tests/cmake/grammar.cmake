# SPDX-License-Identifier: Apache-2.0
foreach(noun build match mask regex gbnf)
  tr_unit_test(grammar ${noun})
endforeach()
